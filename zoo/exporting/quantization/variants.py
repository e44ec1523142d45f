"""Quantized copies of the graphs of an export, which agree with float32 on text."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from zoo.checkpoint import DATA, Checkpoint, variant_file
from zoo.errors import NonFiniteError
from zoo.exporting.graph.opsets import latest_release
from zoo.exporting.graph.report import OnnxReport, QuantizedGraphs
from zoo.exporting.quantization.agreement import (
    Summary,
    TextBatch,
    agreement,
    embedding_agreement,
    embedding_summary,
    make_samples,
    require_different_scores,
    summaries,
)
from zoo.exporting.quantization.plan import GateMetric, Quantization, QuantizationPlan
from zoo.exporting.quantization.quantize import quantizable, quantize
from zoo.exporting.quantization.search import MixedPrecisionModel, select_quantized_layers
from zoo.exporting.quantization.smoothing import InputStatistics, input_statistics
from zoo.exporting.quantization.texts import read_texts, smoothing_texts, why_no_texts
from zoo.exporting.report import Agreement
from zoo.families.onnx import OnnxSpec
from zoo.inference.ort.runtime import create_session, run_graph
from zoo.inference.ort.session import GraphSession
from zoo.inference.session import Session
from zoo.overrides import override
from zoo.sentence_models.modules import SENTENCE_VECTOR, TOKENS

if TYPE_CHECKING:
    from zoo.sentence_models.module_weights import ModuleWeights
    from zoo.sentence_models.pooling import Pooling

# texts and labelled samples by which layers are ordered, in batches and in number
QUICK_BATCHES = 4
QUICK_SAMPLES = 256


Compare = Callable[[Sequence[Path]], Agreement]  # of the files of quantized copies
GraphLayer = tuple[str, str]  # file of the graph and name of the node


def _modules(checkpoint: Checkpoint) -> "tuple[Pooling | None, ModuleWeights]":
    """Return the modules of a sentence encoder, and their weights."""
    return checkpoint.model.pooling, checkpoint.module_weights()


@dataclass(frozen=True)
class _Reference:
    """The graphs in float32, and what quantized copies are compared with."""

    checkpoint: Checkpoint  # model of the graphs
    cache: bool  # whether the graphs have a key-value cache
    samples: Sequence[TextBatch]  # batches of texts
    summaries: Sequence[Summary]  # outputs for ``samples``
    metric: GateMetric | None = None  # metric on labelled data
    limit: int | None = None  # number of its samples; ``None`` for all
    value: float = 0.0

    def compare(self, paths: Sequence[Path]) -> Agreement:
        """Return the agreement of quantized copies with the graphs."""
        session = GraphSession(paths, self.checkpoint, cache=self.cache)
        spec = self.checkpoint.onnx_spec
        actual = summaries(session.run, self.samples, spec, *_modules(self.checkpoint))
        compared = msgspec.structs.replace(
            agreement(self.summaries, actual, spec, self.checkpoint),
            random_tokens=why_no_texts(self.checkpoint) is not None,
        )
        if self.metric is None or not math.isfinite(compared.drop):
            return compared
        try:
            name, value = self.metric.measure(session, self.limit)
        except NonFiniteError:  # on labelled data only
            return msgspec.structs.replace(compared, drop=math.inf)
        return compared.with_metric(name, self.value, value)

    def on_fewer(self, session: Session) -> "_Reference":
        """Return the reference on the first texts and samples."""
        value = self.metric.measure(session, QUICK_SAMPLES)[1] if self.metric else 0.0
        return replace(
            self,
            samples=self.samples[:QUICK_BATCHES],
            summaries=self.summaries[:QUICK_BATCHES],
            limit=QUICK_SAMPLES,
            value=value,
        )


class QuantizedCopies(MixedPrecisionModel[GraphLayer]):
    """Graphs in float32 whose copies are quantized in one way.

    Args:
        folder: directory of the graphs.
        files: their names.
        layers: file and node of the layers that can be quantized.
        method: how weights are quantized.
        calibration: texts for static scales.
        statistics: file -> statistics of what its products read, for smoothing.
        external_over: number of bytes of weights that get a file of their own.
    """

    def __init__(
        self,
        folder: Path,
        files: Sequence[str],
        layers: Sequence[GraphLayer],
        method: Quantization,
        calibration: Sequence[TextBatch],
        statistics: Mapping[str, Mapping[str, InputStatistics]],
        external_over: int,
    ) -> None:
        self._folder = folder
        self._files = files
        self.layers = layers
        self._method = method
        self._calibration = [sample.inputs for sample in calibration]
        self._statistics = statistics
        self._external_over = external_over

    @override
    def write(self, directory: Path, quantized: Collection[GraphLayer]) -> None:
        for file, path in zip(self._files, self.paths(directory), strict=True):
            path.parent.mkdir(exist_ok=True)
            quantize(
                self._folder / file,
                path,
                self._method,
                {name for graph, name in quantized if graph == file},
                calibration=self._calibration,
                statistics=self._statistics.get(file),
                external=size_of(self._folder / file) > self._external_over,
            )

    def paths(self, directory: Path) -> list[Path]:
        """Return the paths of the copies in a directory."""
        return [directory / variant_file(file, self._method.dtype) for file in self._files]

    def compare(self, compare: Compare, directory: Path) -> Agreement:
        """Return the agreement of the copies in a directory."""
        return compare(self.paths(directory))


def size_of(graph: Path) -> int:
    """Return the size of a graph with its external data, in bytes."""
    data = graph.with_suffix(DATA)
    return graph.stat().st_size + (data.stat().st_size if data.is_file() else 0)


def write_quantized(
    checkpoint: Checkpoint,
    folder: Path,
    report: OnnxReport,
    plan: QuantizationPlan,
    *,
    external_over: int,
) -> Mapping[str, QuantizedGraphs]:
    """Write copies of graphs in float32, quantized so far that they agree; dtype -> description."""
    files = list(report.graphs)
    cache = report.cache
    session = GraphSession([folder / file for file in files], checkpoint, cache=cache)
    samples = make_samples(checkpoint, read_texts(plan.eval_file))
    value = plan.metric.measure(session)[1] if plan.metric else 0.0
    spec = checkpoint.onnx_spec
    expected = summaries(session.run, samples, spec, *_modules(checkpoint))
    if plan.metric is None:
        require_different_scores(expected)
    reference = _Reference(checkpoint, report.cache, samples, expected, plan.metric, None, value)
    quick = reference.on_fewer(session)
    oldest = report.min_onnxruntime
    copies = _Copies(checkpoint, folder, files, plan, external_over, oldest, cache)
    return copies.write(reference.compare, quick.compare)


def write_quantized_pooled(
    checkpoint: Checkpoint,
    folder: Path,
    spec: OnnxSpec,
    report: OnnxReport,
    plan: QuantizationPlan,
    *,
    external_over: int,
) -> Mapping[str, QuantizedGraphs]:
    """Write quantized copies of a pooled graph that rank texts alike; dtype -> description."""
    assert report.pooled is not None, "the graph was written"
    samples = make_samples(checkpoint, read_texts(plan.eval_file))
    reference = _Ranking.of(checkpoint, spec, folder / report.pooled.file, samples)
    quick = replace(
        reference,
        samples=samples[:QUICK_BATCHES],
        summaries=reference.summaries[:QUICK_BATCHES],
    )
    files = [report.pooled.file]
    oldest = report.min_onnxruntime
    copies = _Copies(checkpoint, folder, files, plan, external_over, oldest, cache=False)
    return copies.write(reference.compare, quick.compare)


@dataclass(frozen=True)
class _Ranking:
    """A pooled graph in float32, and how it ranks texts."""

    checkpoint: Checkpoint
    spec: OnnxSpec  # of the graph
    samples: Sequence[TextBatch]  # batches of texts
    summaries: Sequence[Summary]  # outputs for ``samples``

    @classmethod
    def of(
        cls, checkpoint: Checkpoint, spec: OnnxSpec, graph: Path, samples: Sequence[TextBatch]
    ) -> Self:
        """Run a graph on texts."""
        empty = cls(checkpoint, spec, samples, ())
        return replace(empty, summaries=empty.run(graph))

    def run(self, graph: Path) -> list[Summary]:
        """Return the embeddings of the texts."""
        session = create_session(graph)
        name = SENTENCE_VECTOR if SENTENCE_VECTOR in self.spec.outputs else TOKENS
        found = []
        for sample in self.samples:
            inputs = {key: sample.inputs[key] for key in self.spec.inputs}
            found.append(embedding_summary(run_graph(session, inputs, [name])[name], sample.mask))
        return found

    def compare(self, paths: Sequence[Path]) -> Agreement:
        """Return the agreement of a quantized copy with the graph."""
        (graph,) = paths
        pooling = self.checkpoint.model.pooling
        assert pooling is not None, "the graph has its modules"
        return embedding_agreement(self.summaries, self.run(graph), pooling.similarity_fn_name)


@dataclass(frozen=True)
class _Copies:
    """The copies to write of graphs that belong together."""

    checkpoint: Checkpoint
    folder: Path
    files: Sequence[str]
    plan: QuantizationPlan
    external_over: int
    min_onnxruntime: str  # of the graphs
    cache: bool  # whether the graphs have a key-value cache

    def _statistics(
        self, layers: Sequence[GraphLayer]
    ) -> Mapping[str, Mapping[str, InputStatistics]]:
        """Return what products read, on texts that copies are not compared on."""
        batches = [sample.inputs for sample in make_samples(self.checkpoint, smoothing_texts())]
        statistics = {}
        for file in self.files:
            names = {name for graph, name in layers if graph == file}
            statistics[file] = input_statistics(self.folder / file, names, batches)
        return statistics

    def write(self, compare: Compare, quick: Compare) -> dict[str, QuantizedGraphs]:
        """Write the copies of each method with as many layers as agree; dtype -> description."""
        plan = self.plan
        folder = self.folder
        reports = {}
        layers: list[GraphLayer] = []
        for file in self.files:
            layers += [(file, name) for name in quantizable(folder / file)]
        for method in plan.methods:
            calibration: list[TextBatch] = []
            if method.static:
                calibration = make_samples(self.checkpoint, read_texts(plan.calibration_file))
            statistics: Mapping[str, Mapping[str, InputStatistics]] = {}
            if method.smooth and not self.cache:
                statistics = self._statistics(layers)
            copies = QuantizedCopies(
                folder, self.files, layers, method, calibration, statistics, self.external_over
            )
            selection = select_quantized_layers(
                copies,
                partial(copies.compare, compare),
                partial(copies.compare, quick),
                plan.max_drop,
                method.dtype,
            )
            copies.write(folder, selection.quantized)
            paths = copies.paths(folder)
            graphs: dict[str, dict[str, str | None]] = {}
            for path in paths:
                data = path.with_suffix(DATA)
                data_name = data.name if data.is_file() else None
                graphs[str(path.relative_to(folder))] = {"external_data": data_name}
            reports[method.dtype] = QuantizedGraphs(
                graphs=graphs,
                method=f"{method.name}, smoothed" if any(statistics.values()) else method.name,
                min_onnxruntime=latest_release(self.min_onnxruntime, method.dtype),
                bytes=sum(map(size_of, paths)),
                bytes_before=sum(size_of(folder / file) for file in self.files),
                layers=len(selection.quantized),
                float32_layers=[name for _, name in selection.higher_precision],
                max_drop=plan.max_drop,
                agreement=selection.agreement,
            )
        return reports
