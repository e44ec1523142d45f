"""Quantized copies of the graphs of an export, which agree with float32 on text."""

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.checkpoint import DATA, Checkpoint, variant_file
from zoo.convert.hub_files import GENERATED
from zoo.errors import UsageError
from zoo.export.agreement import (
    Sample,
    Summary,
    agreement,
    make_samples,
    open_graphs,
    read_texts,
    summaries,
)
from zoo.export.graph import EXTERNAL_OVER
from zoo.export.quantize import Quantization, quantizable, quantize
from zoo.export.report import Agreement, QuantizedGraphs
from zoo.export.search import Layer, search
from zoo.families.onnx import OnnxSpec

MAX_DROP = 0.01
QUICK_SAMPLES = 4  # batches by which layers are ordered


@dataclass(frozen=True)
class QuantizationPlan:
    """Quantized copies to write, and the texts that they are measured on.

    Attributes:
        methods: how weights are quantized, one for each copy.
        max_drop: largest accepted drop, see ``Agreement.drop``.
        eval_file: texts of the comparison, one a line; by default from the books of the package.
        calibration_file: texts for static scales, one a line.
    """

    methods: Sequence[Quantization]
    max_drop: float = MAX_DROP
    eval_file: Path | None = None
    calibration_file: Path | None = None

    def check(self, checkpoint: Checkpoint, dtype: str, cache: bool | None) -> None:
        """Check that the copies are possible for a model.

        Raises:
            UsageError: they are not, or a file cannot be read or has no texts.
        """
        generates = bool(GENERATED.intersection(checkpoint.head.tasks)) and cache is not False
        for method in self.methods:
            if dtype != "float32":
                raise UsageError(
                    f"{method.dtype} copies are made of a graph in float32, not {dtype}",
                    "leave --dtype out",
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
        for file in (self.eval_file, self.calibration_file):
            if file is not None:
                read_texts(file)


@dataclass(frozen=True)
class _Variant:
    """One kind of quantized copies, while layers are searched."""

    folder: Path
    files: Sequence[str]
    method: Quantization
    spec: OnnxSpec
    cache: bool
    calibration: Sequence[Sample]

    def write(self, layers: Collection[Layer], target: Path) -> list[Path]:
        """Write copies in which the given layers are quantized, and return their paths."""
        paths = []
        for file in self.files:
            path = target / variant_file(file, self.method.dtype)
            path.parent.mkdir(exist_ok=True)
            quantize(
                self.folder / file,
                path,
                self.method,
                {name for graph, name in layers if graph == file},
                calibration=[sample.inputs for sample in self.calibration],
                external=size_of(self.folder / file) > EXTERNAL_OVER,
            )
            paths.append(path)
        return paths

    def measure(
        self, samples: Sequence[Sample], expected: Sequence[Summary]
    ) -> Callable[[Collection[Layer]], Agreement]:
        """Return a function from quantized layers to the agreement on texts."""

        def measured(layers: Collection[Layer]) -> Agreement:
            with tempfile.TemporaryDirectory() as scratch:
                run = open_graphs(self.write(layers, Path(scratch)), self.spec, cache=self.cache)
                return agreement(expected, summaries(run, samples), self.spec)

        return measured


def size_of(graph: Path) -> int:
    """Return the size of a graph with its external data, in bytes."""
    data = graph.with_suffix(DATA)
    return graph.stat().st_size + (data.stat().st_size if data.is_file() else 0)


def write_quantized(
    checkpoint: Checkpoint,
    spec: OnnxSpec,
    folder: Path,
    files: Sequence[str],
    plan: QuantizationPlan,
    *,
    cache: bool,
) -> Mapping[str, QuantizedGraphs]:
    """Write quantized copies of graphs that agree with them.

    Args:
        checkpoint: model of the graphs.
        spec: inputs and outputs of the model, without a cache.
        folder: directory of the export.
        files: names of the graphs in float32.
        plan: the copies.
        cache: whether the graphs have a key-value cache.

    Returns:
        dtype -> description.

    Raises:
        VerificationError: the copies do not agree, whichever layers stay in float32.
    """
    samples = make_samples(checkpoint, spec, read_texts(plan.eval_file))
    expected = summaries(open_graphs([folder / file for file in files], spec, cache=cache), samples)
    layers = [(file, name) for file in files for name in quantizable(folder / file)]
    reports = {}
    for method in plan.methods:
        calibration: Sequence[Sample] = ()
        if method.static:
            calibration = make_samples(checkpoint, spec, read_texts(plan.calibration_file))
        variant = _Variant(folder, files, method, spec, cache, calibration)
        result = search(
            layers,
            variant.measure(samples, expected),
            variant.measure(samples[:QUICK_SAMPLES], expected[:QUICK_SAMPLES]),
            plan.max_drop,
            method.dtype,
        )
        paths = variant.write(result.quantized, folder)
        reports[method.dtype] = QuantizedGraphs(
            graphs={str(path.relative_to(folder)): _external(path) for path in paths},
            method=method.name,
            bytes=sum(map(size_of, paths)),
            bytes_before=sum(size_of(folder / file) for file in files),
            layers=len(result.quantized),
            float32_layers=[name for _, name in result.float32_layers],
            max_drop=plan.max_drop,
            agreement=result.agreement,
        )
    return reports


def _external(path: Path) -> dict[str, str | None]:
    data = path.with_suffix(DATA)
    return {"external_data": data.name if data.is_file() else None}
