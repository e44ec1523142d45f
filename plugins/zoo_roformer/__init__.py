"""RoFormer (Su et al. 2021, arXiv:2104.09864)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.families.encoder import WordPieceFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo_roformer.config import CONFIG_MAP, RoFormerConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from zoo.tokenizers import SourceFiles
    from zoo.tokenizers.splitters import AnySplitter


class RoFormer(WordPieceFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "roformer"
    package: ClassVar[str] = "zoo_roformer"
    model_types: ClassVar[tuple[str, ...]] = ("roformer",)
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("RoFormerTokenizer",)
    config_type: ClassVar[type[Config]] = RoFormerConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "roformer-chinese-base"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "query", "key", "value", "output.dense", prefix_model_types=("roformer",)
    )
    named_heads: ClassVar[Mapping[str, Head]] = encoder_heads(
        "RoFormer", without=("multiple-choice",)
    )

    @override
    def from_hub(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        # Without a width of their own, embeddings are as wide as the blocks.
        if hub.get("embedding_size") is None:
            width = hub.get("hidden_size", RoFormerConfig().hidden_size)
            hub = {**hub, "embedding_size": width}
        return super().from_hub(hub, location)

    @override
    def tokenizer(self, files: "SourceFiles") -> "Tokenizer":
        from zoo_roformer.tokenizer import tokenizer

        return tokenizer(files)

    @override
    def splitter(self, files: "SourceFiles") -> "AnySplitter | None":
        from zoo_roformer.tokenizer import splitter

        return splitter(files) or super().splitter(files)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (RoFormer(),)
