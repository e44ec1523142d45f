"""GPT-NeoX and Pythia (Black et al. 2022, arXiv:2204.06745; Biderman et al. 2023, 2304.01373)."""

from collections.abc import Mapping
from typing import ClassVar

from zoo.families.adapters import AdapterTargets, joint_targets
from zoo.families.base import Family, Head
from zoo.families.causal import CausalFamily, causal_heads
from zoo.families.config import Config, ConfigMap
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_neox.config import CONFIG_MAP, NeoxConfig


class Neox(CausalFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "neox"
    package: ClassVar[str] = "zoo_neox"
    model_types: ClassVar[tuple[str, ...]] = ("gpt_neox",)
    config_type: ClassVar[type[Config]] = NeoxConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "pythia-160m"
    adapter_targets: ClassVar[AdapterTargets] = joint_targets("query_key_value", "dense_4h_to_h")
    named_heads: ClassVar[Mapping[str, Head]] = causal_heads("GPTNeoX")
    special_tokens: ClassVar[Mapping[str, str]] = {
        "unk": "<|endoftext|>",
        "bos": "<|endoftext|>",
        "eos": "<|endoftext|>",
        "pad": "<|padding|>",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(("<|endoftext|>", "<|padding|>"))
    }


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Neox(),)
