"""Tokenizers: byte-level BPE of BART, SentencePiece with language codes of mBART."""

from typing import TYPE_CHECKING

from zoo.tokenizers import (
    SourceFiles,
    fairseq_bpe_tokenizer,
    is_sentencepiece,
    tokenizer_class,
)
from zoo.tokenizers.fairseq import FAIRSEQ_ROLES, fairseq_language_tokenizer
from zoo.tokenizers.language_codes import LanguageCodes

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


def tokenizer(files: SourceFiles) -> "Tokenizer":
    """Build the tokenizer of the kind that the files of a checkpoint have."""
    if not is_sentencepiece(files):
        return fairseq_bpe_tokenizer(files, roles=FAIRSEQ_ROLES)
    later = tokenizer_class(files) == "MBart50Tokenizer"
    names = [*CC25, *MORE] if later else CC25
    languages = LanguageCodes({name: name for name in names}, default="en_XX", leads=later)
    return fairseq_language_tokenizer(files, languages)
