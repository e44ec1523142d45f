"""ALBERT (Lan et al. 2020, arXiv:1909.11942)."""

import string
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.families.encoder import EncoderFamily, encoder_heads, mlm_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_albert.config import CONFIG_MAP, SPECIAL_TOKENS, AlbertConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles

# special_pieces of create_pretraining_data.py
PUNCTUATION = frozenset(string.punctuation) - frozenset("'<=>")


class Albert(EncoderFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "albert"
    package: ClassVar[str] = "zoo_albert"
    model_types: ClassVar[tuple[str, ...]] = ("albert",)
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("AlbertTokenizer",)
    config_type: ClassVar[type[Config]] = AlbertConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "albert-base-v2"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "query", "key", "value", "ffn_output"
    )
    config_files: ClassVar[tuple[str, ...]] = ("config.json", "albert_config.json")
    special_tokens: ClassVar[Mapping[str, str]] = SPECIAL_TOKENS
    reference_exceptions: ClassVar[Mapping[str, str]] = {
        "dropout_rates": "the released code drops values of feed-forward outputs (modeling.py), "
        "which transformers does not"
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "unigram": TokenizerTrainSpec(
            ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
            lowercase=True,
            strip_accents=True,
            plain_quotes=True,
        )
    }
    named_heads: ClassVar[Mapping[str, Head]] = {
        **encoder_heads("Albert", pooler=True),
        "pretraining": mlm_head(
            "AlbertForPreTraining",
            summary="masked tokens and swapped segments",
            tasks=("sentence-order",),
            sop_logits="batch labels",
        ),
    }

    @override
    def starts_word(self, text: str) -> bool:
        # As ``_is_start_piece_sp`` of create_pretraining_data.py: without a space before them,
        # single punctuation characters also start a word, and tokens with a character that is
        # neither an ASCII letter nor in ``PUNCTUATION``, such as a digit, an apostrophe or an
        # accented letter
        return (
            text.startswith(" ")
            or text in PUNCTUATION
            or not PUNCTUATION.union(string.ascii_lowercase).issuperset(text.lower())
        )

    @override
    def from_hub(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        # A file of Google's release, without ``model_type``, means by ``gelu`` the approximation by
        # tanh (``modeling.py`` of that release)
        if "model_type" not in hub and hub.get("hidden_act") == "gelu":
            hub = {**hub, "hidden_act": "gelu_new"}
        return super().from_hub(hub, location)

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo.tokenizers import CLS_SEP, sentencepiece_tokenizer

        return sentencepiece_tokenizer(
            files,
            roles=SPECIAL_TOKENS,
            template=CLS_SEP,
            mask_takes_space=True,
            lowercase=True,
            strip_accents=True,
            plain_quotes=True,
            split_digit_comma=True,
        )


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Albert(),)
