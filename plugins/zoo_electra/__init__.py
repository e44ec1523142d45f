"""ELECTRA (Clark et al. 2020, arXiv:2003.10555)."""

from collections.abc import Mapping
from typing import ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import WordPieceFamily, encoder_heads, rtd_head
from zoo.plugins.hookspecs import hookimpl
from zoo_electra.config import CONFIG_MAP, ElectraConfig


class Electra(WordPieceFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "electra"
    package: ClassVar[str] = "zoo_electra"
    model_types: ClassVar[tuple[str, ...]] = ("electra",)
    tokenizer_classes: ClassVar[tuple[str, ...]] = ("ElectraTokenizer", "BertTokenizer")
    config_type: ClassVar[type[Config]] = ElectraConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "electra-small-discriminator"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "query", "key", "value", "output.dense", prefix_model_types=("electra",)
    )
    named_heads: ClassVar[Mapping[str, Head]] = {
        **encoder_heads("Electra"),
        "replaced-token-detection": rtd_head("ElectraForPreTraining"),
    }


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Electra(),)
