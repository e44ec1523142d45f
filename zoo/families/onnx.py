"""What a family declares about its ONNX graph."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Axes = tuple[str | int, ...]
# The ecosystem's names: what a graph returns as PRESENT, its next run is given as PAST.
PAST, PRESENT, LOGITS = "past_key_values", "present", "logits"
PAST_TOKENS = "past_tokens"  # the axis of the tokens in a cache, which may be none


@dataclass(frozen=True)
class OnnxSpec:
    """Names and axes of a graph, as the ecosystem expects them.

    Attributes:
        inputs: input name -> its axes; a name is of a dynamic one, a number is a fixed size.
            Inputs are int64, but for those of a cache.
        outputs: output name -> its axes, in the order the model returns them; a number is a
            fixed size.
        limits: axis -> the largest size the model can take.
        tolerance: dtype -> largest accepted difference from torch, relative to the output's
            largest magnitude.
    """

    inputs: Mapping[str, Axes]
    outputs: Mapping[str, Axes]
    limits: Mapping[str, int] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(
        default_factory=lambda: {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
    )


def axis_sum(*axes: str) -> str:
    """Name an axis that is as long as others together; exporters write sums in any order."""
    return " + ".join(sorted(axes))


def resolve_axes(axes: Mapping[str, str], config: Any) -> dict[str, Axes]:
    """Read the axes that a ``zoo.families.base.Head`` gives, with the sizes of a configuration."""
    return {
        name: tuple(_size(word, config) for word in said.split()) for name, said in axes.items()
    }


def _size(word: str, config: Any) -> str | int:
    if word.isdecimal():
        return int(word)
    size = getattr(config, word, word)
    return len(size) if isinstance(size, tuple) else size
