"""ONNX graphs for ONNX Runtime; see ``zoo.exporting.export``."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.exporting.targets.base import ExportSettings, ExportTarget, Precision
from zoo.inference import QUANTIZED
from zoo.inference.ort.session import OnnxSession
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.exporting.report import ExportReport
    from zoo.families.base import Family
    from zoo.inference.session import Session
    from zoo.sentence_models.pooling import Pooling


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
    options = frozenset(
        (
            *("cache", "opset", "optimize", "int8", "int4", "only", "block_size"),
            *("calibration_file", "pooled", "dim", "adapters"),
        )
    )

    @override
    def check_precision(self, name: str | None) -> str:
        if name in QUANTIZED:
            raise UsageError(
                f"--dtype does not quantize ONNX graphs to {name}",
                f"--{name} adds such a graph to the one in float32, and --only {name} writes no "
                "other",
            )
        if name in ("bfloat16", "bf16"):
            raise UsageError(
                f"no graph is exported in {name}: ONNX Runtime only has it on CUDA, and NumPy "
                "cannot read it, so the graph could not be compared with torch",
                "give float16, which has the same size",
            )
        return super().check_precision(name)

    @override
    def export(  # type: ignore[override]
        self, checkpoint: "Checkpoint", directory: Path, settings: ExportSettings
    ) -> "ExportReport":
        from zoo.exporting.export import export_onnx  # imports torch

        return export_onnx(
            checkpoint,
            directory,
            dtype=settings.precision,
            force=settings.force,
            managed=settings.managed,
            quantization=settings.quantization,
            **settings.options,
        )

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
        return OnnxSession.checked(checkpoint, None, threads, precision)
