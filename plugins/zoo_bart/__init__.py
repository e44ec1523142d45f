"""BART (Lewis et al. 2019, arXiv:1910.13461) and mBART (Liu et al. 2020, arXiv:2001.08210)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.adapters import AdapterTargets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.families.seq2seq import Seq2SeqFamily, seq2seq_heads, source_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_bart.config import CONFIG_MAP, CONFIG_MAPS, SPECIAL_TOKENS, BartConfig

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
    adapter_targets: ClassVar[AdapterTargets] = AdapterTargets(
        low_rank=("q_proj", "v_proj"),
        rescaled=("k_proj", "v_proj", "fc2"),
        rescaled_inputs=("fc2",),
    )
    special_tokens: ClassVar[Mapping[str, str]] = SPECIAL_TOKENS
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(("<s>", "<pad>", "</s>", "<unk>"), ("<mask>",))
    }
    # They have the order of the model types.
    named_heads: ClassVar[Mapping[str, Head]] = {
        **seq2seq_heads("Bart", "MBart"),
        **source_heads("Bart", "MBart"),
    }

    @override
    def model_type(self, config: BartConfig) -> str:
        return config.model_type

    @override
    def from_hub(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        # mBART's files may state no first token: it is the language, which depends on the text
        if hub.get("decoder_start_token_id") is None:
            hub = {key: value for key, value in hub.items() if key != "decoder_start_token_id"}
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
