"""Report of an export, which the manifest contains and the command prints."""

from typing import Any

import msgspec

from zoo.io.digests.files import FileDigest
from zoo.io.json import JsonStruct


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
    """

    inputs: dict[str, list[str | int]]
    outputs: dict[str, list[str | int]]
    external_data: str | None


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
        for check in self.checks:
            argmax = "" if check.argmax is None else f", argmax agrees in {check.argmax:.2%}"
            padding = f" ({check.padding} padding)" if check.padding else ""
            shape = f"{check.batch} x {check.tokens} tokens{padding}{check.after}"
            lines.append(
                f"{shape}: differs from torch by {check.worst:.1e} of the largest magnitude{argmax}"
            )
        lines.append(f"accepted: {self.tolerance:.0e}")
        if self.unreadable_elsewhere is not None:
            lines.append(f"for zoo and ONNX Runtime alone: {self.unreadable_elsewhere}")
        return lines
