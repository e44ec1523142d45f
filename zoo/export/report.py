"""What an export found: it goes into the manifest, and on the screen."""

from typing import Any

import msgspec

from zoo.io.digests.files import FileDigest
from zoo.io.json import JsonStruct


class Difference(JsonStruct):
    """How far one output of the graph is from torch's, at places that are not padding.

    Attributes:
        max_abs: the largest absolute difference.
        max_rel: the same, divided by the output's largest magnitude.
        cosine: between both outputs, each as one long vector.
        argmax: the share of places where the largest entry is the same one; for logits.
    """

    max_abs: float
    max_rel: float
    cosine: float
    argmax: float | None = None


class ShapeCheck(JsonStruct):
    """A comparison on one batch.

    Attributes:
        batch: rows.
        tokens: columns.
        padding: how many of the places are padding.
        outputs: output name -> difference.
        past: how many tokens of each row were read in a run before, and came from the cache.
    """

    batch: int
    tokens: int
    padding: int
    outputs: dict[str, Difference]
    past: int = 0

    @property
    def worst(self) -> float:
        """The largest relative difference of any output."""
        return max(found.max_rel for found in self.outputs.values())

    @property
    def after(self) -> str:
        """Of how many tokens the cache was, in words."""
        return f", after {self.past} in the cache" if self.past else ""

    @property
    def argmax(self) -> float | None:
        """The smallest argmax agreement of any output that has one."""
        shares = [found.argmax for found in self.outputs.values() if found.argmax is not None]
        return min(shares, default=None)


class Graph(JsonStruct):
    """A file with a graph.

    Attributes:
        inputs: input name -> axes.
        outputs: output name -> axes.
        external_data: the file next to it that holds its weights, if they are not in it.
    """

    inputs: dict[str, list[str | int]]
    outputs: dict[str, list[str | int]]
    external_data: str | None


class ExportReport(JsonStruct):
    """An exported model, and the result of its gate.

    Attributes:
        validated: whether it passed the gate.
        opset: the ONNX operator set.
        ir: the version of the file format.
        min_onnxruntime: the first release that runs it.
        producer: what the file says wrote it.
        versions: of the packages that took part.
        dtype: what the graph computes in.
        cache: whether the graphs take and return keys and values.
        graphs: the name of each graph's file -> what it takes and returns.
        weights: the files that were exported.
        traced: batch and tokens of the example the graph was traced with.
        tolerance: the largest accepted ``max_rel``.
        max_rel: the largest difference found.
        argmax_agreement: the smallest share found, if there are logits.
        checks: every comparison.
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
    traced: list[int]
    tolerance: float
    max_rel: float
    argmax_agreement: float | None
    checks: list[ShapeCheck]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON knows it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    def lines(self) -> list[str]:
        """Return it as a person wants to read it."""
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
        return [*lines, f"accepted: {self.tolerance:.0e}"]
