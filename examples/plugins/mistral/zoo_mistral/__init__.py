"""Mistral (Jiang et al. 2023, arXiv:2310.06825)."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from zoo.families.base import Family, Head
from zoo.families.causal import CausalFamily, causal_heads
from zoo.families.config import Config, ConfigMap
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_mistral.config import CONFIG_MAP, MistralConfig


class Mistral(CausalFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "mistral"
    package: ClassVar[str] = "zoo_mistral"
    model_types: ClassVar[tuple[str, ...]] = ("mistral",)
    config_type: ClassVar[type[Config]] = MistralConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "mistral-7b-v0.1"
    named_heads: ClassVar[Mapping[str, Head]] = {
        name: head
        for name, head in causal_heads("Mistral").items()
        if name in ("none", "causal-lm", "sequence-classification")
    }
    special_tokens: ClassVar[Mapping[str, str]] = {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(tuple(special_tokens.values()))
    }


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Mistral(),)


@hookimpl
def zoo_checkpoints() -> tuple[Path, ...]:
    """Return the registry file of published checkpoints."""
    return (Path(__file__).with_name("registry.yaml"),)
