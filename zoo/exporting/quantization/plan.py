"""Which quantized copies of a graph are written, and what they are compared on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError
from zoo.exporting.quantization.texts import read_texts, why_no_texts

if TYPE_CHECKING:
    from zoo.inference.session import Session

BLOCK_SIZES = (32, 64, 128)
MAX_DROP = 0.01
# What to do without a file of texts, for models that read none.
REMEDY = {
    "--calibration": "--int8 without static computes the scales in each run",
    "--eval": "leave it out, and rows of random tokens are compared",
}


@dataclass(frozen=True)
class Quantization:
    """Scheme of quantization."""

    dtype: str  # ``int8`` or ``int4``
    # int8: whether calibration texts give the scales of activations; else each run computes them
    static: bool = False
    block_size: int = BLOCK_SIZES[0]  # number of weights that share a scale, of int4

    @property
    def smooth(self) -> bool:
        """Whether outliers of activations are moved into the weights first."""
        return self.dtype == "int8" and not self.static

    @property
    def name(self) -> str:
        """Name of the method in reports."""
        if self.dtype == "int4":
            return f"block {self.block_size}"
        return "static" if self.static else "dynamic"


class GateMetric(Protocol):
    """A metric on labelled data."""

    def measure(self, session: "Session", limit: int | None = None) -> tuple[str, float]:
        """Return name and value; see ``zoo.tasks.metric.TaskMetric``."""


@dataclass(frozen=True)
class QuantizationPlan:
    """Quantized copies to write, and the texts that they are measured on."""

    # how the weights of ONNX graphs are quantized, one for each copy
    methods: Sequence[Quantization] = ()
    max_drop: float = MAX_DROP  # largest accepted drop, see ``Agreement.drop``
    # texts of the comparison, one a line; by default from the books of the package
    eval_file: Path | None = None
    calibration_file: Path | None = None  # texts for static scales, one a line
    # metric on labelled data that is compared in place of the texts' agreement
    metric: GateMetric | None = None

    def check(self, checkpoint: Checkpoint, dtype: str, cache: bool | None) -> None:
        """Check that the copies are possible for a model."""
        generates = checkpoint.head.has_cache and cache is not False
        for method in self.methods:
            if dtype != "float32":
                raise UsageError(
                    f"{method.dtype} copies are made of a graph in float32, not {dtype}",
                    "leave --dtype out",
                )
            if method.dtype == "int4" and checkpoint.head.has_cache and not generates:
                raise UsageError(
                    "int4 is for graphs with a key-value cache", "leave --no-cache out"
                )
            if method.dtype == "int4" and not generates:
                raise UsageError(
                    "int4 is for models that generate text with a key-value cache, and the head "
                    f"{checkpoint.head_name} does not",
                    "--int8 quantizes it",
                )
            if method.static and generates:
                raise UsageError(
                    "static scales are for graphs without a key-value cache",
                    "--int8 without static computes them in each run",
                )
            if method.static and self.calibration_file is None:
                raise UsageError("static scales need texts", "give --calibration FILE")
        self.check_texts(checkpoint)

    def check_texts(self, checkpoint: Checkpoint) -> None:
        """Check that a model reads texts if files of them are given, and that they can be read."""
        without_texts = why_no_texts(checkpoint)
        files = {"--calibration": self.calibration_file, "--eval": self.eval_file}
        for option, file in files.items():
            if file is not None and without_texts is not None:
                raise UsageError(
                    f"{option} {file} cannot be read as tokens: {without_texts}", REMEDY[option]
                )
            if file is not None:
                read_texts(file)
