"""ERNIE 1.0 to 3.0 (Sun et al. 2019, arXiv:1904.09223; 2020, arXiv:1907.12412)."""

from collections.abc import Mapping
from typing import ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import WordPieceFamily, encoder_heads
from zoo.plugins.hookspecs import hookimpl
from zoo_ernie.config import CONFIG_MAP, ErnieConfig


class Ernie(WordPieceFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "ernie"
    package: ClassVar[str] = "zoo_ernie"
    model_types: ClassVar[tuple[str, ...]] = ("ernie",)
    config_type: ClassVar[type[Config]] = ErnieConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "ernie-3.0-base-zh"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "query", "key", "value", "output.dense"
    )
    named_heads: ClassVar[Mapping[str, Head]] = encoder_heads("Ernie", pooler=True)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Ernie(),)
