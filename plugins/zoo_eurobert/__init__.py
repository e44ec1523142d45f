"""EuroBERT (Boizard et al. 2025, arXiv:2503.05500)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.base import Family, Head
from zoo.families.config import Config, ConfigMap
from zoo.families.encoder import ByteLevelFamily, encoder_heads
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_eurobert.config import CONFIG_MAP, EuroBertConfig

BEGIN = "<|begin_of_text|>"
END = "<|end_of_text|>"


class EuroBert(ByteLevelFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "eurobert"
    package: ClassVar[str] = "zoo_eurobert"
    model_types: ClassVar[tuple[str, ...]] = ("eurobert",)
    config_type: ClassVar[type[Config]] = EuroBertConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "eurobert-210m"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "q_proj", "k_proj", "v_proj", "down_proj"
    )
    named_heads: ClassVar[Mapping[str, Head]] = encoder_heads(
        "EuroBert", without=("question-answering", "multiple-choice")
    )
    fields_by_stage: ClassVar[tuple[str, ...]] = ("rope_theta",)
    special_tokens: ClassVar[Mapping[str, str]] = {
        "bos": BEGIN,
        "eos": END,
        "unk": END,  # No text has it: each byte is a token.
        "cls": BEGIN,
        "sep": END,
        "pad": END,
        "mask": "<|mask|>",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec((BEGIN, END, "<|mask|>"))
    }

    @override
    def reconfigure(self, model: Any, config: Any) -> None:
        from zoo.nn.positions import make_rotary

        rotary = make_rotary(config, config.head_size, config.rope_theta)
        model.rotary.base = rotary.base
        model.rotary.scaling = rotary.scaling


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (EuroBert(),)
