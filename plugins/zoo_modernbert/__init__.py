"""ModernBERT (Warner et al. 2024, arXiv:2412.13663), and Ettin's encoders (arXiv:2507.11412)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.families.adapters import AdapterTargets, joint_targets
from zoo.families.alternating import ROTARY_BASES, change_rotary_bases
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import ByteLevelFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_modernbert.composer import CLASSES, to_hub_keys
from zoo_modernbert.config import CONFIG_MAP, ModernBertConfig


class ModernBert(ByteLevelFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "modernbert"
    package: ClassVar[str] = "zoo_modernbert"
    model_types: ClassVar[tuple[str, ...]] = ("modernbert",)
    config_type: ClassVar[type[Config]] = ModernBertConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "modernbert-base"
    adapter_targets: ClassVar[AdapterTargets] = joint_targets("Wqkv", "mlp.Wo")
    named_heads: ClassVar[Mapping[str, Head]] = encoder_heads("ModernBert")
    other_classes: ClassVar[tuple[str, ...]] = tuple(CLASSES)
    fields_by_stage: ClassVar[tuple[str, ...]] = ROTARY_BASES
    special_tokens: ClassVar[Mapping[str, str]] = {
        "unk": "[UNK]",
        "cls": "[CLS]",
        "sep": "[SEP]",
        "pad": "[PAD]",
        "mask": "[MASK]",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(tuple(special_tokens.values()))
    }

    @override
    def translate_config(self, hub: Mapping[str, Any]) -> dict[str, Any]:
        return to_hub_keys(hub)

    @override
    def reconfigure(self, model: Any, config: Any) -> None:
        change_rotary_bases(model, config)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (ModernBert(),)
