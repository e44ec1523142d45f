"""BLOOM (BigScience Workshop 2022, arXiv:2211.05100)."""

from collections.abc import Mapping
from typing import ClassVar

from zoo.families.adapters import AdapterTargets, joint_targets
from zoo.families.base import Family, Head
from zoo.families.causal import CausalFamily, causal_heads
from zoo.families.config import Config, ConfigMap
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_bloom.config import CONFIG_MAP, BloomConfig


class Bloom(CausalFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "bloom"
    package: ClassVar[str] = "zoo_bloom"
    model_types: ClassVar[tuple[str, ...]] = ("bloom",)
    config_type: ClassVar[type[Config]] = BloomConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "bloom-560m"
    adapter_targets: ClassVar[AdapterTargets] = joint_targets("query_key_value", "dense_4h_to_h")
    named_heads: ClassVar[Mapping[str, Head]] = causal_heads("Bloom")
    special_tokens: ClassVar[Mapping[str, str]] = {
        "unk": "<unk>",
        "bos": "<s>",
        "eos": "</s>",
        "pad": "<pad>",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(tuple(special_tokens.values()))
    }


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Bloom(),)
