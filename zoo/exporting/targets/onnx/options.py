"""Options of the target."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from zoo.exporting.targets.base import TargetOptions
from zoo.overrides import override


class OnnxOptions(TargetOptions, frozen=True, kw_only=True):
    """Options of the graphs."""

    cache: Annotated[
        bool | None,
        Meta(
            description="Whether the ONNX graph has a key-value cache.  [default: if the head "
            "generates text]"
        ),
    ] = None
    optimize: Annotated[
        bool, Meta(description="Fuse layers into operators that only ONNX Runtime has.")
    ] = False
    pooled: Annotated[
        bool,
        Meta(
            description="Add a graph with the modules of a sentence encoder: pooling, Dense, "
            "normalization."
        ),
    ] = False
    dim: (
        Annotated[
            int,
            Meta(ge=1, description="Keep the first N numbers of the embeddings of --pooled."),
        ]
        | None
    ) = None
    opset: Annotated[int | None, Meta(description="ONNX operator set version.")] = None
    int8: Annotated[
        Literal["dynamic", "static"],
        Meta(description="How activations are scaled in int8: in each run, or by --calibration."),
    ] = "dynamic"
    only: Annotated[
        Literal["int8", "int4"] | None,
        Meta(description="Write only the graphs with 8-bit or 4-bit weights, and none in float32."),
    ] = None
    block_size: Annotated[
        Literal[32, 64, 128] | None,
        Meta(description="Number of 4-bit weights that share a scale.  [default: 32]"),
    ] = None
    calibration: Annotated[
        Path | None,
        Meta(description="Texts for `--int8 static`, one a line; the first 256 are read."),
    ] = None
    adapter_inputs: Annotated[
        bool,
        Meta(
            description="Keep the tensors of an adapter as inputs of the graph, so that it serves "
            "each --adapter, and others like them."
        ),
    ] = False

    @property
    @override
    def keeps_adapters(self) -> bool:
        return self.adapter_inputs
