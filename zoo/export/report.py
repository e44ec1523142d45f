"""Report of an export, which the manifest contains and the command prints."""

import math
from typing import Any

import msgspec

from zoo.io.digests.files import FileDigest
from zoo.io.json import JsonStruct


def at_least_0(drop: float) -> float:
    """Return a drop, 0 for an improvement and infinite for NaN, which ``max`` would lose."""
    return math.inf if math.isnan(drop) else max(0.0, drop)


class Difference(JsonStruct):
    """Difference between an output of the graph and that of torch, without padding.

    Attributes:
        max_abs: largest absolute difference.
        max_rel: largest absolute difference, divided by the largest magnitude of the output.
        cosine: cosine similarity of the two outputs, each flattened to one vector.
        argmax: fraction of tokens with the same argmax, from 0 to 1; ``None`` except for logits.
    """

    max_abs: float
    max_rel: float
    cosine: float
    argmax: float | None = None


class ShapeCheck(JsonStruct):
    """Comparison of a graph with torch on one batch.

    Attributes:
        batch: number of rows.
        tokens: number of tokens per row, with padding.
        padding: number of padding tokens in the batch.
        outputs: output name -> difference.
        past: number of tokens per row that were in the key-value cache.
    """

    batch: int
    tokens: int
    padding: int
    outputs: dict[str, Difference]
    past: int = 0

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


class Graph(JsonStruct):
    """Description of a graph file.

    Attributes:
        inputs: input name -> axes.
        outputs: output name -> axes.
        external_data: name of the file with the weights; ``None`` if they are in the graph file.
        fused: operator of ONNX Runtime -> number of nodes, of a graph with fused layers.
    """

    inputs: dict[str, list[str | int]]
    outputs: dict[str, list[str | int]]
    external_data: str | None
    fused: dict[str, int] = msgspec.field(default_factory=dict)


class Agreement(JsonStruct):
    """Agreement of a quantized or fused graph with the one in float32.

    Attributes:
        texts: number of texts, or of rows of random tokens.
        measure: what the gate compares: the metric of labelled data, ``perplexity`` of language
            models, ``correlation`` of heads with a single logit, ``argmax`` of other heads with
            logits, else ``cosine``.
        drop: the relative loss of the metric, the relative increase of the perplexity, 1 -
            correlation, 1 - argmax, or 1 - cosine.
        cosine: mean cosine similarity of a text's vectors: the first output, pooled as the model
            does, or else its mean over tokens.
        argmax: fraction of tokens or texts with the same argmax; ``None`` without logits.
        correlation: Pearson's correlation of the scores of a head with a single logit, such as
            that of regression; ``None`` for others.
        perplexity: perplexity of the graph; ``None`` where no text is predicted.
        reference: perplexity in float32.
        metric: metric on labelled data, called ``measure``; ``None`` without.
        reference_metric: the same in float32.
        random_tokens: whether rows of random tokens took the place of texts.
    """

    texts: int
    measure: str
    drop: float
    cosine: float
    argmax: float | None = None
    correlation: float | None = None
    perplexity: float | None = None
    reference: float | None = None
    metric: float | None = None
    reference_metric: float | None = None
    random_tokens: bool = False

    def with_metric(self, name: str, reference: float, value: float) -> "Agreement":
        """Return the agreement with a metric as the measure; a higher metric is better."""
        loss = reference - value
        if loss:
            loss = loss / abs(reference) if reference else math.copysign(math.inf, loss)
        return msgspec.structs.replace(
            self,
            measure=name,
            drop=at_least_0(loss),
            metric=value,
            reference_metric=reference,
        )

    def line(self) -> str:
        """Return the numbers as a phrase."""
        parts = [f"cosine {self.cosine:.4f}"]
        if self.argmax is not None:
            parts.append(f"argmax agrees in {self.argmax:.1%}")
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
    """Description of quantized copies of the graphs.

    Attributes:
        graphs: names of the files.
        method: ``dynamic``, ``static``, or ``block N`` of int4 with N weights a scale.
        min_onnxruntime: oldest release of ONNX Runtime that runs them.
        bytes: size of the files and their external data.
        bytes_before: size in float32.
        layers: number of quantized layers.
        float32_layers: layers in float32 because they lose most, the most sensitive first.
        max_drop: largest accepted drop.
        agreement: agreement with float32 on text.
    """

    graphs: dict[str, dict[str, str | None]]
    method: str
    min_onnxruntime: str
    bytes: int
    bytes_before: int
    layers: int
    float32_layers: list[str]
    max_drop: float
    agreement: Agreement

    def lines(self, dtype: str) -> list[str]:
        """Return the lines of the report for a terminal."""
        share = self.bytes / self.bytes_before
        lines = [
            f"{dtype} ({self.method}): {self.bytes_before / 1e6:,.1f} MB become "
            f"{self.bytes / 1e6:,.1f} MB ({share:.0%}), {self.layers} layers quantized; "
            f"runs on onnxruntime {self.min_onnxruntime} or newer",
            f"{dtype}: {self.agreement.line()}; accepted: {self.max_drop:.1%} of "
            f"{self.agreement.measure}",
        ]
        if self.float32_layers:
            lines.append(
                f"{dtype}: in float32 because they lose most: {', '.join(self.float32_layers)}"
            )
        return lines


class ExportReport(JsonStruct):
    """Description of an exported model, with the results of its comparison with torch.

    Attributes:
        validated: whether all differences are within the tolerance.
        opset: ONNX operator set version.
        ir: ONNX IR version.
        min_onnxruntime: oldest release of ONNX Runtime that runs the graph.
        producer: producer name and version in the ONNX file.
        versions: package -> version, for the packages used in the export.
        dtype: dtype of the computation.
        cache: whether the graphs have a key-value cache.
        graphs: file name -> description of the graph.
        weights: file name -> digest, for the exported weights.
        tensors: dtype -> number of tensors in the graphs.
        unreadable_elsewhere: the reason why programs that read the Hub's layout do not compute the
            model's results; ``None`` if they do.
        traced: number of rows and of tokens per row of the traced batch.
        tolerance: largest accepted ``max_rel``.
        max_rel: largest relative difference of all outputs and batches.
        argmax_agreement: smallest ``argmax`` of all batches; ``None`` without logits.
        checks: comparisons, one per batch.
        quantized: dtype -> quantized copies of the graphs.
    """

    validated: bool
    opset: int
    ir: int
    min_onnxruntime: str
    producer: str
    versions: dict[str, str]
    dtype: str
    cache: bool
    graphs: dict[str, Graph]
    weights: dict[str, FileDigest]
    tensors: dict[str, int]
    unreadable_elsewhere: str | None
    traced: list[int]
    tolerance: float
    max_rel: float
    argmax_agreement: float | None
    checks: list[ShapeCheck]
    quantized: dict[str, QuantizedGraphs] = msgspec.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as values that JSON can represent."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values

    def lines(self) -> list[str]:
        """Return the lines of the report for a terminal."""
        what = "graph" if len(self.graphs) == 1 else "encoder and decoder"
        what += " with a cache" if self.cache else ""
        lines = [
            f"{what} in {self.dtype}, opset {self.opset}, IR {self.ir}: "
            f"runs on onnxruntime {self.min_onnxruntime} or newer"
        ]
        for file, graph in self.graphs.items():
            if graph.fused:
                counts = ", ".join(f"{count} {name}" for name, count in graph.fused.items())
                lines.append(f"{file}: fused for ONNX Runtime alone: {counts}")
        for check in self.checks:
            argmax = "" if check.argmax is None else f", argmax agrees in {check.argmax:.2%}"
            padding = f" ({check.padding} padding)" if check.padding else ""
            shape = f"{check.batch} x {check.tokens} tokens{padding}{check.after}"
            lines.append(
                f"{shape}: differs from torch by {check.worst:.1e} of the largest magnitude{argmax}"
            )
        lines.append(f"accepted: {self.tolerance:.0e}")
        for dtype, copies in self.quantized.items():
            lines += copies.lines(dtype)
        if self.unreadable_elsewhere is not None:
            lines.append(f"for zoo and ONNX Runtime alone: {self.unreadable_elsewhere}")
        return lines
