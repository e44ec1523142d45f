"""Jina's encoders: JinaBERT v2 (arXiv:2310.19923) and Jina Embeddings v3 (arXiv:2409.10173)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from zoo.families.adapters import AdapterTargets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.families.config.rope import scaling_problem
from zoo.families.encoder import WordPieceFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo_jina.config import (
    CLASSES,
    CONFIG_MAPS,
    FLASH_CLASSES,
    FLASH_CONFIG,
    V3_MAP,
    XLMR_CLASSES,
    JinaConfig,
    flash_keys,
    published_flash_keys,
    to_own_keys,
)

if TYPE_CHECKING:
    from zoo.sentence_models.pooling import Pooling


class Jina(WordPieceFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "jina"
    package: ClassVar[str] = "zoo_jina"
    model_types: ClassVar[tuple[str, ...]] = (
        "jina_embeddings_v3",
        "jina_bert",
        "xlm_roberta_flash",
    )
    config_type: ClassVar[type[Config]] = JinaConfig
    config_map: ClassVar[ConfigMap] = V3_MAP
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "jina-embeddings-v2-base-en"
    other_classes: ClassVar[tuple[str, ...]] = CLASSES
    other_config_classes: ClassVar[tuple[str, ...]] = (FLASH_CONFIG,)
    adapter_targets: ClassVar[AdapterTargets] = AdapterTargets(
        low_rank=("query", "value", "Wqkv"),
        rescaled=("key", "value", "Wqkv", "mlp.wo", "mlp.fc2"),
        rescaled_inputs=("mlp.wo", "mlp.fc2"),
    )
    named_heads: ClassVar[Mapping[str, Head]] = encoder_heads(
        "JinaEmbeddingsV3",
        "JinaBert",
        FLASH_CLASSES,
        pooler=True,
        without=("multiple-choice",),
    )

    @override
    def architecture(self, config: JinaConfig, head: str) -> str:
        return super().architecture(config, head).replace(FLASH_CLASSES, XLMR_CLASSES)

    @override
    def prompt_types(self, config: JinaConfig) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(config.tasks, start=1)}

    @override
    def has_reference(self, config: JinaConfig, head: str) -> bool:
        return config.model_type == "jina_embeddings_v3" and super().has_reference(config, head)

    @override
    def translate_config(self, hub: Mapping[str, Any]) -> dict[str, Any]:
        code = hub.get("auto_map")
        if isinstance(code, Mapping) and str(code.get("AutoConfig")).endswith(FLASH_CONFIG):
            return flash_keys(dict(hub))
        return to_own_keys(dict(hub))

    @override
    def from_hub(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        if hub.get("model_type") == "bert":
            hub = to_own_keys(dict(hub))
        elif hub.get("model_type") == "xlm-roberta":
            hub = flash_keys(dict(hub))
        return super().from_hub(hub, location)

    @override
    def to_hub(self, config: Any, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        hub = super().to_hub(config, extra)
        if config.model_type == "jina_bert":
            hub["model_type"] = "bert"  # As in published files, whose class names tell them apart.
        if config.model_type == "xlm_roberta_flash":
            return published_flash_keys(config, hub)
        return hub

    @override
    def hub_problem(self, config: Any, extra: Mapping[str, Any] | None = None) -> str | None:
        if config.model_type != "xlm_roberta_flash":
            return None
        return scaling_problem(config, "the published code")

    @override
    def sentence_settings(
        self, hub: Mapping[str, Any], pooling: "Pooling | None", location: str
    ) -> "Pooling | None":
        instructions = hub.get("task_instructions")
        if pooling is None or pooling.prompts or not isinstance(instructions, Mapping):
            return pooling
        prompts = {str(name): str(text) for name, text in instructions.items()}
        return msgspec.structs.replace(pooling, prompts=prompts)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Jina(),)
