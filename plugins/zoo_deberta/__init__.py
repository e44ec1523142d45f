"""DeBERTa, versions 1 to 3 (He et al. 2020, arXiv:2006.03654; 2021, arXiv:2111.09543)."""

import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from zoo.families.adapters import AdapterTargets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import EncoderFamily, encoder_heads, mlm_head, rtd_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_deberta.config import CONFIG_MAP, FIRST_MAP, DebertaConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

_SHARED = encoder_heads("DebertaV2", "Deberta")
_OWN = ("replaced-token-detection", "pretraining")


class Deberta(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "deberta"
    package: ClassVar[str] = "zoo_deberta"
    model_types: ClassVar[tuple[str, ...]] = ("deberta-v2", "deberta")
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("DebertaTokenizer", "DebertaV2Tokenizer")
    config_type: ClassVar[type[Config]] = DebertaConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    config_maps: ClassVar[Mapping[str, ConfigMap]] = {"deberta": FIRST_MAP}
    default_checkpoint: ClassVar[str] = "deberta-v3-base"
    adapter_targets: ClassVar[AdapterTargets] = AdapterTargets(
        low_rank=("in_proj", "query_proj", "value_proj"),
        rescaled=("in_proj", "key_proj", "value_proj", "output.dense"),
        rescaled_inputs=("output.dense",),
    )
    reference_exceptions: ClassVar[Mapping[str, str]] = {
        "reference_defaults legacy_names": "new models have the names of the released code"
    }
    special_tokens: ClassVar[Mapping[str, str]] = {
        **{role: f"[{role.upper()}]" for role in ("unk", "cls", "sep", "pad", "mask")},
        "bos": "[CLS]",
        "eos": "[SEP]",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = dict.fromkeys(
        ("unigram", "byte-level-bpe"),
        TokenizerTrainSpec(("[PAD]", "[CLS]", "[SEP]", "[UNK]"), ("[MASK]",)),
    )
    named_heads: ClassVar[Mapping[str, Head]] = {
        **_SHARED,
        "multiple-choice": replace(
            _SHARED["multiple-choice"], architectures=("DebertaV2ForMultipleChoice",)
        ),
        "replaced-token-detection": rtd_head(*["ReplacedTokenDetectionModel"] * 2),
        "pretraining": mlm_head(
            *_SHARED["masked-lm"].architectures,
            summary="masked tokens and replaced tokens",
            replaced_logits="batch tokens",
        ),
    }

    @override
    def model_type(self, config: DebertaConfig) -> str:
        return "deberta-v2" if config.key_bias else "deberta"

    @override
    def title(self, config: DebertaConfig) -> str:
        return self.name if config.key_bias else "DeBERTa 1"

    @override
    def starts_word(self, text: str) -> bool:
        # As ``part_of_whole_word`` of deberta/spm_tokenizer.py and deberta/gpt2_tokenizer.py:
        # single punctuation and control characters also start a word without a space before them
        return text.startswith(" ") or (len(text) == 1 and _separates_words(text))

    @override
    def has_reference(self, config: DebertaConfig, head: str) -> bool:
        # It has neither the enhanced mask decoder nor the replaced-token head
        if head in _OWN or (head == "masked-lm" and config.decodes_positions):
            return False
        return super().has_reference(config, head)

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import (
            CLS_SEP,
            byte_level_bpe_tokenizer,
            is_sentencepiece,
            sentencepiece_tokenizer,
        )

        roles = self.special_tokens
        if not is_sentencepiece(files):
            return byte_level_bpe_tokenizer(
                files, roles=roles, template=CLS_SEP, mask_takes_space=True
            )
        return sentencepiece_tokenizer(
            files, roles=roles, template=CLS_SEP, lowercase=False, last=("[MASK]",)
        )


def _separates_words(character: str) -> bool:
    """Return whether a character is white space, a control character or punctuation."""
    # All ASCII characters but letters and digits are punctuation
    if character.isascii():
        return not character.isalnum()
    category = unicodedata.category(character)
    return category == "Zs" or category[0] in "CP"


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Deberta(),)
