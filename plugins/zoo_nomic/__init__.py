"""Nomic's encoder of long texts (Nussbaum et al. 2024, arXiv:2402.01613)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.families.adapters import AdapterTargets, joint_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.families.config.rope import scaling_problem
from zoo.families.encoder import WordPieceFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo_nomic.config import CONFIG_MAP, CONFIG_MAPS, NomicConfig, has_experts


class Nomic(WordPieceFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "nomic"
    package: ClassVar[str] = "zoo_nomic"
    model_types: ClassVar[tuple[str, ...]] = ("nomic_bert", "nomic_bert_moe")
    config_type: ClassVar[type[Config]] = NomicConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "nomic-embed-text-v1.5"
    adapter_targets: ClassVar[AdapterTargets] = joint_targets("Wqkv", "mlp.fc2")
    named_heads: ClassVar[Mapping[str, Head]] = encoder_heads(
        "NomicBert", "NomicBert", pooler=True, without=("question-answering", "multiple-choice")
    )

    @override
    def has_reference(self, config: NomicConfig, head: str) -> bool:
        return config.model_type == "nomic_bert" and super().has_reference(config, head)

    @override
    def from_hub(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        if has_experts(dict(hub)):
            hub = {**hub, "model_type": "nomic_bert_moe"}
        return super().from_hub(hub, location)

    @override
    def to_hub(self, config: Any, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        hub = {**super().to_hub(config, extra), "model_type": "nomic_bert"}
        if config.rope_type == "dynamic" and _is_for_published_code(config, extra):
            hub["rotary_scaling_factor"] = config.rope_factor
            hub["max_trained_positions"] = config.max_positions
        return hub

    @override
    def hub_problem(self, config: Any, extra: Mapping[str, Any] | None = None) -> str | None:
        if config.rope_type == "dynamic" or not _is_for_published_code(config, extra):
            return None
        return scaling_problem(config, "the published code")


def _is_for_published_code(config: NomicConfig, extra: Mapping[str, Any] | None) -> bool:
    """Return whether the code that comes with a model reads its files, not transformers' class.

    Of the scalings it computes dynamic NTK, by ``rotary_scaling_factor``
    (``NomicBertDynamicNTKRotaryEmbedding``).
    """
    return config.model_type == "nomic_bert_moe" or "auto_map" in (extra or {})


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Nomic(),)
