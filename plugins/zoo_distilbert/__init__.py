"""DistilBERT (Sanh et al. 2019, arXiv:1910.01108)."""

from collections.abc import Mapping
from typing import ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.distillation import DistillationRecipe
from zoo.families.encoder import WordPieceFamily, encoder_heads
from zoo.plugins.hookspecs import hookimpl
from zoo_distilbert.config import CONFIG_MAP, DistilBertConfig


class DistilBert(WordPieceFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "distilbert"
    package: ClassVar[str] = "zoo_distilbert"
    model_types: ClassVar[tuple[str, ...]] = ("distilbert",)
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("DistilBertTokenizer", "BertTokenizer")
    config_type: ClassVar[type[Config]] = DistilBertConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "distilbert-base-uncased"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "q_lin", "k_lin", "v_lin", "ffn.lin2"
    )
    named_heads: ClassVar[Mapping[str, Head]] = encoder_heads("DistilBert")


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (DistilBert(),)


@hookimpl
def zoo_recipes() -> tuple[DistillationRecipe, ...]:
    """Return the recipe of the paper, for students of all families."""
    return DistilBert().distillation()
