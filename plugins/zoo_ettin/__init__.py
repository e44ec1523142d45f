"""Ettin's decoders: ModernBERT with causal attention (Weller et al. 2025, arXiv:2507.11412)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.alternating import ROTARY_BASES, change_rotary_bases
from zoo.families.base import Family, Head
from zoo.families.causal import CausalFamily, causal_lm_head
from zoo.families.config import Config, ConfigMap
from zoo.families.heads import standard_head
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_ettin.config import CONFIG_MAP, EttinConfig

_CLASSES = "ModernBertDecoder"


class Ettin(CausalFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "ettin"
    package: ClassVar[str] = "zoo_ettin"
    model_types: ClassVar[tuple[str, ...]] = ("modernbert-decoder",)
    config_type: ClassVar[type[Config]] = EttinConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAP
    default_checkpoint: ClassVar[str] = "ettin-decoder-150m"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "q_proj", "k_proj", "v_proj", "mlp.Wo", prefix_model_types=("modernbert-decoder",)
    )
    named_heads: ClassVar[Mapping[str, Head]] = {
        "none": standard_head("none", _CLASSES),
        "causal-lm": causal_lm_head(f"{_CLASSES}ForCausalLM"),
        "sequence-classification": standard_head("sequence-classification", _CLASSES),
    }
    fields_by_stage: ClassVar[tuple[str, ...]] = ROTARY_BASES
    # The decoders have the vocabulary of the encoders.
    special_tokens: ClassVar[Mapping[str, str]] = {
        "unk": "[UNK]",
        "bos": "[CLS]",
        "eos": "[SEP]",
        "cls": "[CLS]",
        "sep": "[SEP]",
        "pad": "[PAD]",
        "mask": "[MASK]",
    }
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"))
    }

    @override
    def reconfigure(self, model: Any, config: Any) -> None:
        change_rotary_bases(model, config)


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Ettin(),)
