"""ONNX graphs for ONNX Runtime; see ``zoo.exporting.export``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from zoo.errors import UsageError
from zoo.exporting.targets.base import (
    ExportSettings,
    ExportTarget,
    Precision,
    TargetOptions,
    unused_option,
)
from zoo.inference import INT4, INT8, QUANTIZED
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.exporting.quantization.variants import QuantizationPlan
    from zoo.exporting.report import ExportReport
    from zoo.families.base import Family
    from zoo.inference.session import Session
    from zoo.sentence_models.pooling import Pooling


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


class Onnx(ExportTarget):
    """ONNX graphs. One directory holds graphs in several precisions, and a key-value cache."""

    name = "onnx"
    title = "ONNX Runtime"
    library = "onnx"
    package = "onnxruntime"
    install = "pip install onnxruntime"
    precisions: ClassVar[Mapping[str, Precision]] = {
        "float32": Precision(1e-4, "kernels add in another order"),
        "float16": Precision(2e-2, "weights and activations have 11 bits"),
        "int8": Precision(None, "8-bit weights and activations"),
        "int4": Precision(None, "4-bit weights"),
    }
    options_type: ClassVar[type[TargetOptions]] = OnnxOptions
    options: OnnxOptions
    combines_precisions = True

    @property
    @override
    def keeps_adapters(self) -> bool:
        return self.options.adapter_inputs

    @override
    def check_precision(self, name: str | None) -> str:
        if name in ("bfloat16", "bf16"):
            raise UsageError(
                f"no graph is exported in {name}: ONNX Runtime only has it on CUDA, and NumPy "
                "cannot read it, so the graph could not be compared with torch",
                "give float16, which has the same size",
            )
        return super().check_precision(name)

    @override
    def resolve_precisions(self, names: Sequence[str]) -> tuple[str, ...]:
        # Quantized graphs are copies of the one in float32, which comes first.
        requested = [self.check_precision(name) for name in names]
        only = self.options.only
        if only is not None:
            for name in requested:
                if name in QUANTIZED and name != only:
                    raise UsageError(
                        f"--only {only} leaves out what --{name} adds", "give one of them"
                    )
            requested.append(only)
        graphs = list(dict.fromkeys(name for name in requested if name not in QUANTIZED))
        copies = dict.fromkeys(name for name in requested if name in QUANTIZED)
        if len(graphs) > 1:
            raise UsageError(
                f"graphs are exported in one of {' and '.join(graphs)}", "give one of them"
            )
        return (*(graphs or ["float32"]), *copies)

    @override
    def export(  # type: ignore[override]
        self, checkpoint: "Checkpoint", directory: Path, settings: ExportSettings
    ) -> "ExportReport":
        from zoo.exporting.export import export_onnx  # imports torch

        names = [name for name in (settings.precision, *settings.more_precisions) if name]
        dtype, *copies = self.resolve_precisions(names)
        return export_onnx(
            checkpoint,
            directory,
            opset=self.options.opset,
            force=settings.force,
            managed=settings.managed,
            dtype=dtype,
            cache=self.options.cache,
            optimize=self.options.optimize,
            quantization=self._quantization(copies, settings.quantization),
            only=self.options.only,
            pooled=self.options.pooled,
            dim=self.options.dim,
            adapters=settings.adapters,
        )

    def _quantization(
        self, copies: Sequence[str], plan: "QuantizationPlan | None"
    ) -> "QuantizationPlan | None":
        """Return how the quantized copies are made and compared; ``None`` for none."""
        from dataclasses import replace

        from zoo.exporting.quantization.quantize import BLOCK_SIZES, Quantization
        from zoo.exporting.quantization.variants import QuantizationPlan

        static = self.options.int8 == "static"
        if self.options.block_size is not None and INT4 not in copies:
            raise unused_option("--block-size", "--int4")
        if self.options.calibration is not None and not (INT8 in copies and static):
            raise unused_option("--calibration", "--int8 static")
        if not copies:
            return plan
        methods = []
        for dtype in copies:
            if dtype == INT8:
                methods.append(Quantization(INT8, static=static))
            else:
                block_size = self.options.block_size or BLOCK_SIZES[0]
                methods.append(Quantization(INT4, block_size=block_size))
        plan = plan or QuantizationPlan()
        return replace(plan, methods=methods, calibration_file=self.options.calibration)

    @override
    def refusal(
        self, family: "Family", config: Any, head: str, pooling: "Pooling | None" = None
    ) -> str | None:
        return None

    @override
    def write(self, checkpoint: "Checkpoint", directory: Path, precision: str) -> None:
        raise UsageError("graphs are written with their comparison", "call export")

    @override
    def open(
        self, checkpoint: "Checkpoint", directory: Path, precision: str, threads: int | None = None
    ) -> "Session":
        from zoo.inference.ort.session import OnnxSession

        return OnnxSession.checked(checkpoint, None, threads, precision)
