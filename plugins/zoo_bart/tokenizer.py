"""Tokenizers: byte-level BPE of BART, SentencePiece with language codes of mBART."""

from typing import TYPE_CHECKING

from zoo.errors import VerificationError, did_you_mean
from zoo.tokenizers import (
    SourceFiles,
    Template,
    fairseq_bpe_tokenizer,
    is_sentencepiece,
    sentencepiece_tokenizer,
    tokenizer_class,
)
from zoo_bart.config import SPECIAL_TOKENS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# the languages of the first release, and those that the second one adds, in the order of their ids
CC25 = [
    "ar_AR",
    "cs_CZ",
    "de_DE",
    "en_XX",
    "es_XX",
    "et_EE",
    "fi_FI",
    "fr_XX",
    "gu_IN",
    "hi_IN",
    "it_IT",
    "ja_XX",
    "kk_KZ",
    "ko_KR",
    "lt_LT",
    "lv_LV",
    "my_MM",
    "ne_NP",
    "nl_XX",
    "ro_RO",
    "ru_RU",
    "si_LK",
    "tr_TR",
    "vi_VN",
    "zh_CN",
]
MORE = [
    "af_ZA",
    "az_AZ",
    "bn_IN",
    "fa_IR",
    "he_IL",
    "hr_HR",
    "id_ID",
    "ka_GE",
    "km_KH",
    "mk_MK",
    "ml_IN",
    "mn_MN",
    "mr_IN",
    "pl_PL",
    "ps_AF",
    "pt_XX",
    "sv_SE",
    "sw_KE",
    "ta_IN",
    "te_IN",
    "th_TH",
    "tl_XX",
    "uk_UA",
    "ur_PK",
    "xh_ZA",
    "gl_ES",
    "sl_SI",
]
FIRST = ("<s>", "<pad>", "</s>", "<unk>")  # instead of the first three pieces of SentencePiece's


def tokenizer(files: SourceFiles) -> "Tokenizer":
    """Build the tokenizer of the kind that the files of a checkpoint have."""
    if not is_sentencepiece(files):
        return fairseq_bpe_tokenizer(files, roles=SPECIAL_TOKENS)
    settings = files.json_if_any("tokenizer_config.json")
    later = tokenizer_class(files) == "MBart50Tokenizer"
    languages = [*CC25, *MORE] if later else CC25
    source = settings.get("src_lang") or "en_XX"
    if source not in languages:
        path = files.path("tokenizer_config.json")
        raise VerificationError(
            f"{path}: src_lang = {source!r:.100} is not a language of mBART",
            did_you_mean(str(source), languages),
        )
    around = f"{source} {{}} eos" if later else f"{{}} eos {source}"
    return sentencepiece_tokenizer(
        files,
        roles={**SPECIAL_TOKENS, **{code: code for code in languages}},
        template=Template(around.format("$A"), around.format("$A $B")),
        first=FIRST,
        skip=3,
        last=(*languages, SPECIAL_TOKENS["mask"]),
        mask_takes_space=True,
    )
