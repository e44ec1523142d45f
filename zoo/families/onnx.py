"""Inputs, outputs and axes of ONNX graphs, as families declare them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Axes = tuple[str | int, ...]
# Names of ONNX Runtime and Optimum: the outputs PRESENT of a run are the inputs PAST of the next.
EMBEDDING = "sentence_embedding"  # (batch, size): pooled, and normalized if the model says so
PAST = "past_key_values"
PRESENT = "present"
LOGITS = "logits"
SOURCE_HIDDEN = "encoder_hidden_states"
SOURCE_MASK = "encoder_attention_mask"
# For a decoder after an encoder: false in the first run, in which it computes the keys and values
# of cross-attention, and true in all others, which read them from the cache.
USE_CACHE = "use_cache_branch"
# For a decoder: the number of tokens, the last ones, to return the logits of. An input with a
# default, so that programs that do not know it get the logits of all.
NUM_LOGITS = "num_logits_to_keep"
ALL_LOGITS = 0
SCORED_TOKENS = "scored_tokens"
# The axes of cached tokens, of size 0 in the first run.
PAST_TOKENS = "past_tokens"
PAST_SOURCE_TOKENS = "past_source_tokens"


@dataclass(frozen=True)
class OnnxSpec:
    """Names and axes of a graph, by the conventions of ONNX Runtime and Optimum.

    Attributes:
        inputs: input name -> its axes: the name of a dynamic axis, or a fixed size. Inputs are
            int64, except hidden states, a cache and ``USE_CACHE``.
        outputs: output name -> its axes, in the order in which the model returns them.
        limits: axis -> its largest size.
        minimums: axis -> the smallest size with which the Hub's class computes the same, if not 1.
        tolerance: dtype -> largest accepted difference from torch, relative to the output's
            largest magnitude.
    """

    inputs: Mapping[str, Axes]
    outputs: Mapping[str, Axes]
    limits: Mapping[str, int] = field(default_factory=dict)
    minimums: Mapping[str, int] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(
        default_factory=lambda: {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
    )


def axis_sum(*axes: str) -> str:
    """Return the name of an axis whose size is the sum of others, sorted for comparison."""
    return " + ".join(sorted(axes))


def resolve_axes(axes: Mapping[str, str], config: Any) -> dict[str, Axes]:
    """Return the axes of a ``zoo.families.base.Head`` with the sizes of a configuration."""
    sizes = {}
    for name, words in axes.items():
        sizes[name] = tuple(_size(word, config) for word in words.split())
    return sizes


def _size(word: str, config: Any) -> str | int:
    if word.isdecimal():
        return int(word)
    size = getattr(config, word, word)
    return len(size) if isinstance(size, tuple) else size
