"""Report of an ONNX export: its graphs and their copies."""

from collections.abc import Iterator

import msgspec

from zoo.adapted_models.exported import AdapterInputs
from zoo.exporting.report import Agreement, ExportReport, ShapeCheck
from zoo.io.json import JsonStruct
from zoo.overrides import override


class Graph(JsonStruct):
    """Description of a graph file."""

    inputs: dict[str, list[str | int]]  # input name -> axes
    outputs: dict[str, list[str | int]]  # output name -> axes
    # name of the file with the weights; ``None`` if they are in the graph file
    external_data: str | None
    # operator of ONNX Runtime -> number of nodes, of a graph with fused layers
    fused: dict[str, int] = msgspec.field(default_factory=dict)


class QuantizedGraphs(JsonStruct):
    """Description of quantized copies of the graphs."""

    graphs: dict[str, dict[str, str | None]]
    # ``dynamic``, which may be ``dynamic, smoothed``, ``static``, or ``block N`` of int4 with N
    # weights a scale
    method: str
    min_onnxruntime: str  # oldest release of ONNX Runtime that runs them
    bytes: int  # size of the files and their external data
    bytes_before: int  # size in float32
    layers: int
    float32_layers: list[str]  # layers in float32 because they lose most, the most sensitive first
    max_drop: float  # largest accepted drop
    agreement: Agreement  # agreement with float32 on text

    def lines(self, dtype: str) -> list[str]:
        """Return the lines of the report for a terminal."""
        share = self.bytes / self.bytes_before
        lines = [
            f"{dtype} ({self.method}): {self.bytes_before / 1e6:,.1f} MB become "
            f"{self.bytes / 1e6:,.1f} MB ({share:.0%}), {self.layers} layers quantized: "
            f"runs on onnxruntime {self.min_onnxruntime} or newer",
            f"  {self.agreement.line()}",
            f"  {self.agreement.drop_line(self.max_drop)}",
        ]
        if self.float32_layers:
            lines.append(f"  in float32 because they lose most: {', '.join(self.float32_layers)}")
        return lines


class PooledGraph(JsonStruct):
    """Description of the graph with the modules of a sentence encoder."""

    file: str  # name of the graph
    dim: int | None  # number of leading dimensions that were asked for; ``None`` for the model's
    graph: Graph
    max_rel: float  # largest relative difference from torch
    checks: list[ShapeCheck]  # comparisons, one per batch
    # dtype -> quantized copies of the graph
    quantized: dict[str, QuantizedGraphs] = msgspec.field(default_factory=dict)
    kept: bool = True  # whether the graph itself is there, and not only its copies

    def lines(self) -> list[str]:
        """Return the lines of the report for a terminal."""
        outputs = ", ".join(self.graph.outputs)
        kept = "" if self.kept else ", not kept"
        line = f"{self.file}: {outputs}, largest difference from torch {self.max_rel:.1e}{kept}"
        copies = [(f"pooled {dtype}", graphs) for dtype, graphs in self.quantized.items()]
        return [line, *(line for name, graphs in copies for line in graphs.lines(name))]


class OnnxReport(ExportReport, kw_only=True):
    """Description of ONNX graphs, with the results of their comparison with torch."""

    opset: int  # ONNX operator set version
    ir: int  # ONNX IR version
    min_onnxruntime: str  # oldest release of ONNX Runtime that runs the graph
    producer: str  # producer name and version in the ONNX file
    cache: bool  # whether the graphs have a key-value cache
    graphs: dict[str, Graph]  # file name -> description of the graph
    traced: list[int]  # number of rows and of tokens per row of the traced batch
    # Fields of every export, which the record of this one always has.
    unreadable_elsewhere: str | None
    tolerance: float
    max_rel: float
    argmax_agreement: float | None
    checks: list[ShapeCheck]
    tensors: dict[str, int]
    # dtype -> quantized copies of the graphs
    quantized: dict[str, QuantizedGraphs] = msgspec.field(default_factory=dict)
    # the graph with pooling and the other modules of a sentence encoder, of ``--pooled``
    pooled: PooledGraph | None = None
    # inputs of the graph that hold an adapter, and the names of the adapters next to it
    adapter_inputs: AdapterInputs | None = None
    adapters: list[str] = msgspec.field(default_factory=list)

    @override
    def measured_precisions(self) -> Iterator[tuple[str, Agreement]]:
        yield from super().measured_precisions()
        for dtype, copies in self.quantized.items():
            yield dtype, copies.agreement

    @override
    def lines(self) -> list[str]:
        what = "graph" if len(self.graphs) < 2 else "encoder and decoder"
        what += " with a cache" if self.cache else ""
        kept = "" if self.graphs else ", not kept"
        lines = [
            f"{what} in {self.dtype}{kept}, opset {self.opset}, IR {self.ir}: "
            f"runs on onnxruntime {self.min_onnxruntime} or newer"
        ]
        for file, graph in self.graphs.items():
            if graph.fused:
                counts = ", ".join(f"{count} {name}" for name, count in graph.fused.items())
                lines.append(f"{file}: fused for ONNX Runtime only: {counts}")
        lines.append(
            "largest difference from torch, of the largest magnitude (accepted: "
            f"{self.tolerance:.0e}):"
        )
        lines += [f"  {check.line()}" for check in self.checks]
        if self.adapters:
            lines.append(f"adapters that it takes, in adapters/: {', '.join(self.adapters)}")
        lines += self.pooled.lines() if self.pooled else []
        for dtype, copies in self.quantized.items():
            lines += copies.lines(dtype)
        if self.unreadable_elsewhere is not None:
            lines.append(f"for zoo and ONNX Runtime only: {self.unreadable_elsewhere}")
        return lines
