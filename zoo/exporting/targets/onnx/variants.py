"""What an ONNX export has besides its graphs: quantized copies, a pooled graph, adapters."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from zoo.adapters.graph_inputs import (
    adapter_arrays,
    adapter_names,
    write_adapters,
)
from zoo.checkpoint import DATA, Checkpoint
from zoo.exporting.graph.onnx_file import check_graph
from zoo.exporting.graph.pooled import pooled_model
from zoo.exporting.graph.pooled_spec import pooled_spec
from zoo.exporting.graph.report import OnnxReport, PooledGraph
from zoo.exporting.graph.write import example_shape, write_pooled
from zoo.exporting.quantization.plan import QuantizationPlan
from zoo.exporting.quantization.variants import write_quantized, write_quantized_pooled
from zoo.exporting.report import ExportReport, ShapeCheck
from zoo.exporting.targets.base import WrittenModel
from zoo.exporting.targets.onnx.card import onnx_facts
from zoo.exporting.targets.onnx.checks import check_adapter_inputs
from zoo.exporting.targets.onnx.session import cached_runs
from zoo.exporting.validate import compare, require_equal, run_reference, worst
from zoo.inference.load_model import load_model
from zoo.inference.ort.session import GraphSession
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.exporting.card import CardFacts
    from zoo.exporting.targets.base import ExportSettings
    from zoo.exporting.targets.onnx import Onnx
    from zoo.exporting.targets.onnx.options import OnnxOptions
    from zoo.inference.session import Arrays, Session


class WrittenGraphs(WrittenModel[OnnxReport]):
    """The graphs of a model, which may run with a key-value cache and get quantized copies."""

    report_type: ClassVar[type[ExportReport]] = OnnxReport
    compares_texts = False  # its quantized copies are compared on texts

    def __init__(self, target: "Onnx", checkpoint: Checkpoint, details: Mapping[str, Any]) -> None:
        super().__init__(checkpoint, details)
        self._target = target

    @override
    def runs(
        self, session: "Session", inputs: "Arrays", lengths: Sequence[int], number: int
    ) -> "Iterator[tuple[int, Arrays]]":
        graphs = session.cached_graphs if isinstance(session, GraphSession) else None
        if graphs is None:
            return super().runs(session, inputs, lengths, number)
        return cached_runs(graphs, inputs, lengths, number)

    @override
    def add_variants(self, directory: Path, report: OnnxReport, settings: "ExportSettings") -> None:
        add_variants(
            self.checkpoint,
            directory,
            report,
            self._target.options,
            self._target.quantization_plan(settings),
            settings.adapters,
            external_over=self._target.external_over,
        )

    @override
    def config_keys(self, report: OnnxReport) -> Mapping[str, Any]:
        return transformers_js_config(report)

    @override
    def card_facts(self, report: OnnxReport) -> "CardFacts":
        return onnx_facts(self.checkpoint, report)


def add_variants(
    checkpoint: Checkpoint,
    directory: Path,
    report: OnnxReport,
    options: "OnnxOptions",
    plan: QuantizationPlan | None,
    adapters: Sequence[Checkpoint],
    *,
    external_over: int,
) -> None:
    """Add what the options ask for, each compared with torch or with the graphs in float32."""
    if plan is not None:
        report.quantized |= write_quantized(
            checkpoint, directory, report, plan, external_over=external_over
        )
    if options.pooled:
        report.pooled = _pooled(
            checkpoint,
            directory,
            dim=options.dim,
            opset=report.opset,
            dtype=report.dtype,
            external_over=external_over,
            optimize=options.optimize,
        )
        if plan is not None:
            report.pooled.quantized |= write_quantized_pooled(
                checkpoint,
                directory,
                pooled_spec(checkpoint, options.dim),
                report,
                plan,
                external_over=external_over,
            )
    if options.adapter_inputs:
        report.adapter_inputs = check_adapter_inputs(
            checkpoint, options, report.dtype, plan, adapters
        )
        report.adapters = adapter_names(adapters)
        for adapted in adapters[1:]:
            report.checks.extend(_compare_adapter(adapted, directory, report))
        write_adapters(adapters, directory)
    if options.only is not None:
        _remove_graphs(directory, report)


def _compare_adapter(
    checkpoint: Checkpoint, directory: Path, report: OnnxReport
) -> list[ShapeCheck]:
    """Compare the graph with torch for another adapter."""
    spec = checkpoint.onnx_spec
    model = load_model(checkpoint, torch.float32)
    references = run_reference(model, spec, checkpoint.config, example_shape(spec))
    arrays = adapter_arrays(checkpoint)
    (graph,) = report.graphs
    checks = compare(references, directory / graph, spec, adapter=arrays)
    require_equal(checks, spec.tolerance["float32"], f"the graph with {checkpoint.name}")
    return checks


def _pooled(
    checkpoint: Checkpoint, directory: Path, *, dim: int | None, dtype: str, **settings: Any
) -> PooledGraph:
    """Write the graph with the modules of a sentence encoder, and compare it with torch."""
    spec = pooled_spec(checkpoint, dim)
    graph = write_pooled(checkpoint, spec, directory, dim=dim, dtype=dtype, **settings)
    check_graph(directory / graph.file, graph.spec, settings["opset"])
    model = pooled_model(checkpoint, spec, dim, torch.float32)
    references = run_reference(model, spec, checkpoint.config, example_shape(spec))
    del model
    checks = compare(references, directory / graph.file, spec)
    require_equal(checks, spec.tolerance[dtype], "the pooled graph")
    return PooledGraph(
        file=graph.file,
        dim=dim,
        graph=graph.described(),
        max_rel=worst(checks)["max_rel"],
        checks=checks,
    )


def _remove_graphs(directory: Path, report: OnnxReport) -> None:
    """Remove the graphs that the quantized ones were made of and compared with."""
    files = list(report.graphs)
    if report.pooled is not None:
        files.append(report.pooled.file)
        report.pooled.kept = False
    for file in files:
        (directory / file).unlink()
        (directory / file).with_suffix(DATA).unlink(missing_ok=True)
    report.graphs.clear()
    report.tensors.clear()


def transformers_js_config(report: OnnxReport) -> dict[str, Any]:
    """Return the keys of ``config.json`` that tell Transformers.js of the files."""
    external = {Path(name).name: 1 for name, graph in report.graphs.items() if graph.external_data}
    copies = list(report.quantized.values())
    if report.pooled is not None:
        if report.pooled.kept and report.pooled.graph.external_data:
            external[Path(report.pooled.file).name] = 1
        copies += report.pooled.quantized.values()
    for copy in copies:
        for name, graph in copy.graphs.items():
            if graph["external_data"]:
                external[Path(name).name] = 1
    settings: dict[str, Any] = {"use_external_data_format": external} if external else {}
    if report.cache and report.dtype == "float16":
        settings["kv_cache_dtype"] = {"fp16": report.dtype}
    return {"transformers.js_config": settings} if settings else {}
