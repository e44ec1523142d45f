"""Report of an export, which the manifest contains and the command prints."""

import math
from typing import Any

import msgspec

from zoo.adapters.exported import AdapterInputs
from zoo.io.digests.files import FileDigest
from zoo.io.json import JsonStruct
from zoo.io.numbers import format_percent


def at_least_0(drop: float) -> float:
    """Return a drop, 0 for an improvement and infinite for NaN, which ``max`` would lose."""
    return math.inf if math.isnan(drop) else max(0.0, drop)


class Difference(JsonStruct):
    """Difference between an output of the graph and torch's, without padding."""

    max_abs: float  # largest absolute difference
    max_rel: float  # largest absolute difference, divided by the largest magnitude of the output
    cosine: float  # cosine similarity of the two outputs, each flattened to one vector
    # fraction of tokens with the same argmax, from 0 to 1; ``None`` except for logits
    argmax: float | None = None


class ShapeCheck(JsonStruct):
    """Comparison of a graph with torch on one batch."""

    batch: int  # number of rows
    tokens: int  # number of tokens per row, with padding
    padding: int  # number of padding tokens in the batch
    outputs: dict[str, Difference]
    past: int = 0  # number of tokens per row that were in the key-value cache
    texts: bool = False  # whether the rows are texts, and not random tokens

    @property
    def worst(self) -> float:
        """Largest ``max_rel`` of the outputs."""
        return max(output.max_rel for output in self.outputs.values())

    @property
    def after(self) -> str:
        """Phrase with the number of cached tokens, for messages; empty without any."""
        return f", after {self.past} in the cache" if self.past else ""

    @property
    def argmax(self) -> float | None:
        """Smallest ``argmax`` of the outputs; ``None`` without logits."""
        shares = [output.argmax for output in self.outputs.values() if output.argmax is not None]
        return min(shares, default=None)

    def line(self) -> str:
        """Return the shape and the difference as a phrase."""
        argmax = "" if self.argmax is None else f", argmax agrees in {self.argmax:.2%}"
        padding = f" ({self.padding} padding)" if self.padding else ""
        shape = f"{self.batch} x {self.tokens} tokens{padding}{self.after}"
        return f"{shape}: {self.worst:.1e}{argmax}"


class Graph(JsonStruct):
    """Description of a graph file."""

    inputs: dict[str, list[str | int]]  # input name -> axes
    outputs: dict[str, list[str | int]]  # output name -> axes
    # name of the file with the weights; ``None`` if they are in the graph file
    external_data: str | None
    # operator of ONNX Runtime -> number of nodes, of a graph with fused layers
    fused: dict[str, int] = msgspec.field(default_factory=dict)


class Agreement(JsonStruct):
    """Agreement of a quantized or fused graph with the one in float32."""

    texts: int  # number of texts, or of rows of random tokens
    # what the gate compares: the metric of labelled data, ``perplexity`` of language models,
    # ``ranking`` of rerankers, sparse encoders and late interaction, ``correlation`` of other heads
    # with a single logit, ``argmax`` of other heads with logits, else ``cosine``
    measure: str
    # the relative loss of the metric, the relative increase of the perplexity, or 1 - the ranking,
    # the correlation, argmax or cosine
    drop: float
    # mean cosine similarity of a text's vectors: the first output, pooled as the model does, or
    # else its mean over tokens; ``None`` where vectors differ in size
    cosine: float | None = None
    lowest_cosine: float | None = None  # of a text
    # fraction of tokens or texts with the same argmax; ``None`` without logits
    argmax: float | None = None
    # Pearson's correlation of the scores of a head with a single logit, such as regression
    correlation: float | None = None
    # Spearman's correlation of similarities to other texts, or of the scores of pairs
    ranking: float | None = None
    perplexity: float | None = None  # perplexity of the graph; ``None`` where no text is predicted
    reference: float | None = None  # perplexity in float32
    metric: float | None = None  # metric on labelled data, called ``measure``; ``None`` without
    reference_metric: float | None = None  # the same in float32
    random_tokens: bool = False  # whether rows of random tokens took the place of texts

    def with_metric(self, name: str, reference: float, value: float) -> "Agreement":
        """Return the agreement with a metric as the measure; a higher metric is better."""
        loss = reference - value
        if loss:
            loss = loss / abs(reference) if reference else math.copysign(math.inf, loss)
        return msgspec.structs.replace(
            self, measure=name, drop=at_least_0(loss), metric=value, reference_metric=reference
        )

    def drop_line(self, accepted: float) -> str:
        """Return what is lost, and how much is accepted, as a phrase."""
        return (
            f"loss of {self.measure}: {format_percent(self.drop)} "
            f"(accepted: {format_percent(accepted)})"
        )

    def line(self) -> str:
        """Return the numbers as a phrase."""
        parts = [] if self.cosine is None else [f"cosine {self.cosine:.4f}"]
        if self.lowest_cosine is not None:
            parts.append(f"at the lowest {self.lowest_cosine:.4f}")
        if self.argmax is not None:
            parts.append(f"argmax agrees in {self.argmax:.1%}")
        if self.ranking is not None:
            parts.append(f"rank correlation of the texts {self.ranking:.4f}")
        if self.correlation is not None:
            parts.append(f"correlation of the scores {self.correlation:.4f}")
        if self.perplexity is not None and self.reference is not None:
            parts.append(f"perplexity {self.perplexity:.2f}, in float32 {self.reference:.2f}")
        compared = "rows of random tokens" if self.random_tokens else "texts"
        line = f"{', '.join(parts)}, of {self.texts} {compared}"
        if self.metric is not None:
            line += f"; {self.measure} {self.metric:.4f}, in float32 {self.reference_metric:.4f}"
        return line


class QuantizedGraphs(JsonStruct):
    """Description of quantized copies of the graphs."""

    graphs: dict[str, dict[str, str | None]]
    method: str  # ``dynamic``, ``static``, or ``block N`` of int4 with N weights a scale
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
        outputs, kept = ", ".join(self.graph.outputs), "" if self.kept else ", not kept"
        line = f"{self.file}: {outputs}, largest difference from torch {self.max_rel:.1e}{kept}"
        copies = [(f"pooled {dtype}", graphs) for dtype, graphs in self.quantized.items()]
        return [line, *(line for name, graphs in copies for line in graphs.lines(name))]


class ExportReport(JsonStruct):
    """Description of an exported model, with the results of its comparison with torch."""

    validated: bool  # whether all differences are within the tolerance
    opset: int  # ONNX operator set version
    ir: int  # ONNX IR version
    min_onnxruntime: str  # oldest release of ONNX Runtime that runs the graph
    producer: str  # producer name and version in the ONNX file
    versions: dict[str, str]  # package -> version, for the packages used in the export
    dtype: str  # dtype of the computation
    cache: bool  # whether the graphs have a key-value cache
    graphs: dict[str, Graph]  # file name -> description of the graph
    weights: dict[str, FileDigest]
    tensors: dict[str, int]  # dtype -> number of tensors in the graphs
    # the reason why programs that read the Hub's layout do not compute the model's results;
    # ``None`` if they do
    unreadable_elsewhere: str | None
    traced: list[int]  # number of rows and of tokens per row of the traced batch
    tolerance: float  # largest accepted ``max_rel``
    max_rel: float  # largest relative difference of all outputs and batches
    argmax_agreement: float | None  # smallest ``argmax`` of all batches; ``None`` without logits
    checks: list[ShapeCheck]  # comparisons, one per batch
    # dtype -> quantized copies of the graphs
    quantized: dict[str, QuantizedGraphs] = msgspec.field(default_factory=dict)
    # the graph with pooling and the other modules of a sentence encoder, of ``--pooled``
    pooled: PooledGraph | None = None
    # inputs of the graph that hold an adapter, and the names of the adapters next to it
    adapter_inputs: AdapterInputs | None = None
    adapters: list[str] = msgspec.field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as values that JSON can represent."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values

    def lines(self) -> list[str]:
        """Return the lines of the report for a terminal."""
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
