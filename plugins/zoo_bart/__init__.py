"""BART (Lewis et al. 2019, arXiv:1910.13461) and mBART (Liu et al. 2020, arXiv:2001.08210)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.families.seq2seq import Seq2SeqFamily, seq2seq_heads, source_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.fairseq import FAIRSEQ_FIRST, FAIRSEQ_ROLES
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_bart.config import CONFIG_MAP, CONFIG_MAPS, BartConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles


class Bart(Seq2SeqFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "bart"
    package: ClassVar[str] = "zoo_bart"
    model_types: ClassVar[tuple[str, ...]] = ("bart", "mbart")
    tokenizer_classes: ClassVar[tuple[str, ...]] = (
        "BartTokenizer",
        "MBartTokenizer",
        "MBart50Tokenizer",
    )
    config_type: ClassVar[type[Config]] = BartConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "bart-base"
    begins_with_language: ClassVar[bool] = True  # mBART's decoder.
    special_tokens: ClassVar[Mapping[str, str]] = FAIRSEQ_ROLES
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(FAIRSEQ_FIRST, ("<mask>",))
    }
    # They have the order of the model types.
    named_heads: ClassVar[Mapping[str, Head]] = {
        **seq2seq_heads("Bart", "MBart"),
        **source_heads("Bart", "MBart"),
    }

    @override
    def from_hub(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        if hub.get("model_type") == "mbart" and not hub.get("id2label"):
            hub = {"num_labels": 2, **hub}  # the default of its class on the Hub
        return super().from_hub(hub, location)

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo_bart.tokenizer import tokenizer

        return tokenizer(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Bart(),)
