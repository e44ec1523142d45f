"""Jina's encoders: JinaBERT v2 (arXiv:2310.19923) and Jina Embeddings v3 (arXiv:2409.10173)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.families.adapters import AdapterTargets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.families.encoder import WordPieceFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo_jina.config import CLASSES, CONFIG_MAPS, V3_MAP, JinaConfig, to_own_keys

_ENCODER_HEADS = encoder_heads("JinaEmbeddingsV3", "JinaBert", pooler=True)


class Jina(WordPieceFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "jina"
    package: ClassVar[str] = "zoo_jina"
    model_types: ClassVar[tuple[str, ...]] = ("jina_embeddings_v3", "jina_bert")
    config_type: ClassVar[type[Config]] = JinaConfig
    config_map: ClassVar[ConfigMap] = V3_MAP
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "jina-embeddings-v2-base-en"
    other_classes: ClassVar[tuple[str, ...]] = CLASSES
    adapter_targets: ClassVar[AdapterTargets] = AdapterTargets(
        low_rank=("query", "value", "Wqkv"),
        rescaled=("key", "value", "Wqkv", "mlp.wo", "mlp.fc2"),
        rescaled_inputs=("mlp.wo", "mlp.fc2"),
    )
    named_heads: ClassVar[Mapping[str, Head]] = {
        name: head for name, head in _ENCODER_HEADS.items() if name != "multiple-choice"
    }

    @override
    def model_type(self, config: JinaConfig) -> str:
        return config.model_type

    @override
    def has_reference(self, config: JinaConfig, head: str) -> bool:
        return config.model_type != "jina_bert" and super().has_reference(config, head)

    @override
    def translate_config(self, hub: Mapping[str, Any]) -> dict[str, Any]:
        return to_own_keys(dict(hub))

    @override
    def from_hub(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        if hub.get("model_type") == "bert":
            hub = to_own_keys(dict(hub))
        return super().from_hub(hub, location)

    @override
    def to_hub(self, config: Any, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        hub = super().to_hub(config, extra)
        if config.model_type == "jina_bert":
            hub["model_type"] = "bert"  # As in published files, whose class names tell them apart.
        return hub


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Jina(),)
