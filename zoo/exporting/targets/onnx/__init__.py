"""ONNX graphs for ONNX Runtime."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.exporting.targets.base import (
    ExportSettings,
    ExportTarget,
    Precision,
    TargetOptions,
    unused_option,
)
from zoo.exporting.targets.onnx.options import OnnxOptions
from zoo.inference import INT4, INT8, QUANTIZED
from zoo.overrides import override
from zoo.version import package_version

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.exporting.quantization.plan import Quantization, QuantizationPlan
    from zoo.exporting.targets.onnx.variants import WrittenGraphs
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
    options_type: ClassVar[type[TargetOptions]] = OnnxOptions
    options: OnnxOptions
    combines_precisions = True

    @property
    def external_over(self) -> int:
        """Number of bytes of weights that get a file of their own."""
        from zoo.exporting.graph.onnx_file import EXTERNAL_OVER  # imports ONNX Runtime

        return EXTERNAL_OVER

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
    def check_model(self, checkpoint: "Checkpoint", settings: ExportSettings) -> None:
        from zoo.exporting.targets.onnx.checks import check_variants

        dtype = self.resolve_precisions(settings.precisions)[0]
        plan = self.quantization_plan(settings)
        check_variants(checkpoint, self.options, dtype, plan, settings.adapters)

    @override
    def write(
        self, checkpoint: "Checkpoint", directory: Path, precision: str
    ) -> "WrittenGraphs | None":
        from zoo.exporting.targets.onnx.variants import WrittenGraphs
        from zoo.exporting.targets.onnx.write import write_onnx, write_quantized_graphs

        size = self.external_over
        if precision not in QUANTIZED:
            details = write_onnx(checkpoint, directory, self.options, precision, external_over=size)
            return WrittenGraphs(self, checkpoint, details)
        method = self._method(precision)
        write_quantized_graphs(checkpoint, directory, self.options, method, external_over=size)
        return None

    @override
    def open(
        self, checkpoint: "Checkpoint", directory: Path, precision: str, threads: int | None = None
    ) -> "Session":
        from zoo.exporting.targets.onnx.session import open_graphs

        return open_graphs(checkpoint, directory, precision, threads)

    @override
    def versions(self) -> dict[str, str]:
        versions = {}
        for package in ("onnx", "onnxscript", "onnxruntime"):
            versions[package] = package_version(package) or "unknown"
        return versions

    def quantization_plan(self, settings: ExportSettings) -> "QuantizationPlan | None":
        """Return how the quantized copies are made and compared; ``None`` for none."""
        from dataclasses import replace

        from zoo.exporting.quantization.plan import QuantizationPlan

        _, *copies = self.resolve_precisions(settings.precisions)
        if self.options.block_size is not None and INT4 not in copies:
            raise unused_option("--block-size", "--int4")
        uses_texts = INT8 in copies and self.options.int8 == "static"
        if self.options.calibration is not None and not uses_texts:
            raise unused_option("--calibration", "--int8 static")
        plan = settings.quantization or QuantizationPlan()
        if copies:
            methods = [self._method(dtype) for dtype in copies]
            return replace(plan, methods=methods, calibration_file=self.options.calibration)
        return plan if plan.methods else None

    def _method(self, dtype: str) -> "Quantization":
        """Return how weights are quantized."""
        from zoo.exporting.quantization.plan import BLOCK_SIZES, Quantization

        if dtype == INT8:
            return Quantization(INT8, static=self.options.int8 == "static")
        return Quantization(INT4, block_size=self.options.block_size or BLOCK_SIZES[0])

    @override
    def refusal(
        self, family: "Family", config: Any, head: str, pooling: "Pooling | None" = None
    ) -> str | None:
        return None
