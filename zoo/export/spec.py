"""What a family declares about its ONNX graph."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class OnnxSpec:
    """Names and axes of a graph, as the ecosystem expects them.

    Attributes:
        inputs: input name -> its axes; a name is of a dynamic one, a number is a fixed size.
            Inputs are int64.
        outputs: output name -> its axes, in the order the model returns them; a number is a
            fixed size.
        limits: axis -> the largest size the model can take.
        tolerance: dtype -> largest accepted difference from torch, relative to the output's
            largest magnitude.
    """

    inputs: Mapping[str, tuple[str | int, ...]]
    outputs: Mapping[str, tuple[str | int, ...]]
    limits: Mapping[str, int] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(
        default_factory=lambda: {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
    )
