"""Nomic's encoder of long texts (Nussbaum et al. 2024, arXiv:2402.01613)."""

from collections.abc import Mapping
from typing import ClassVar

from zoo.families.adapters import AdapterTargets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import WordPieceFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo_nomic.config import CONFIG_MAP, NomicConfig

_ENCODER_HEADS = encoder_heads("NomicBert", pooler=True)


class Nomic(WordPieceFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "nomic"
    package: ClassVar[str] = "zoo_nomic"
    model_types: ClassVar[tuple[str, ...]] = ("nomic_bert",)
    config_type: ClassVar[type[Config]] = NomicConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "nomic-embed-text-v1.5"
    adapter_targets: ClassVar[AdapterTargets] = AdapterTargets(
        low_rank=("Wqkv",), rescaled=("Wqkv", "mlp.fc2"), rescaled_inputs=("mlp.fc2",)
    )
    named_heads: ClassVar[Mapping[str, Head]] = {
        name: _ENCODER_HEADS[name]
        for name in ("none", "masked-lm", "sequence-classification", "token-classification")
    }

    @override
    def max_seq_len(self, config: NomicConfig) -> int:
        return config.max_seq_len


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Nomic(),)
