"""Llama and the decoders of its kind, which differ in what their configurations declare.

Touvron et al. 2023, arXiv:2302.13971; for the others, see ``zoo_llama.config.ARCHITECTURES``.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from zoo.families.adapters import AdapterTargets, separate_targets
from zoo.families.alternating import FULL
from zoo.families.base import Family, Head
from zoo.families.causal import CausalFamily, causal_heads
from zoo.families.config import Config, ConfigMap, TranslatedConfig
from zoo.overrides import override
from zoo.plugins.hookspecs import hookimpl
from zoo.tokenizers.train import TokenizerTrainSpec
from zoo_llama.config import CONFIG_MAPS, MODEL_TYPES, LlamaConfig

# Prefixes of the names of the Hub's classes, in the order of the model types. The last ones have
# fewer heads there.
_CLASSES = ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3", "Gemma2", "Olmo2", "Gemma3Text")
_HEADS = causal_heads(*_CLASSES)
_ARCHITECTURES = {
    "none": _HEADS["none"].architectures,
    "causal-lm": (*_HEADS["causal-lm"].architectures[:-1], "Gemma3ForCausalLM"),
    "sequence-classification": _HEADS["sequence-classification"].architectures,
    "token-classification": _HEADS["token-classification"].architectures[:6],
    "question-answering": _HEADS["question-answering"].architectures[:5],
}


class Llama(CausalFamily):
    """The family; it imports torch when a model is built."""

    name: ClassVar[str] = "llama"
    package: ClassVar[str] = "zoo_llama"
    model_types: ClassVar[tuple[str, ...]] = MODEL_TYPES
    config_type: ClassVar[type[Config]] = LlamaConfig
    config_map: ClassVar[ConfigMap] = CONFIG_MAPS["llama"]
    config_maps: ClassVar[Mapping[str, ConfigMap]] = CONFIG_MAPS
    default_checkpoint: ClassVar[str] = "smollm2-135m"
    adapter_targets: ClassVar[AdapterTargets] = separate_targets(
        "q_proj", "k_proj", "v_proj", "down_proj"
    )
    named_heads: ClassVar[Mapping[str, Head]] = {
        name: replace(head, architectures=_ARCHITECTURES[name]) for name, head in _HEADS.items()
    }
    special_tokens: ClassVar[Mapping[str, str]] = {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}
    new_tokenizers: ClassVar[Mapping[str, TokenizerTrainSpec]] = {
        "byte-level-bpe": TokenizerTrainSpec(tuple(special_tokens.values()))
    }

    @override
    def title(self, config: LlamaConfig) -> str:
        return config.model_type

    @override
    def from_hub(self, hub: Mapping[str, Any], location: str = "config.json") -> TranslatedConfig:
        types = hub.get("layer_types")
        is_stated = "sliding_window_pattern" in hub or "_sliding_window_pattern" in hub
        if not is_stated and isinstance(types, list) and FULL in types:
            # Which blocks have local attention follows from a number. The list decides whether it
            # is the number that the file does not state.
            table = self.config_maps[str(hub.get("model_type", self.name))]
            if "sliding_window_pattern" in table.keys:
                hub = {**hub, "sliding_window_pattern": types.index(FULL) + 1}
        return super().from_hub(hub, location)

    @override
    def to_hub(self, config: LlamaConfig, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        hub = super().to_hub(config, extra)
        table = self.config_maps[config.model_type]
        for key, name in table.follows.items():
            hub[key] = getattr(config, name)
        return hub


@hookimpl
def zoo_families() -> tuple[Family, ...]:
    """Return the family."""
    return (Llama(),)
