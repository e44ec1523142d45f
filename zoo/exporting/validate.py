"""Comparisons of outputs with torch at shapes that were not traced, for the gate."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from zoo.errors import VerificationError
from zoo.exporting.report import OutputDifference, ShapeCheck
from zoo.families.config import Config
from zoo.families.onnx import OnnxSpec
from zoo.families.random_inputs import axis_lengths, random_inputs
from zoo.inference.ort.runtime import create_session, run_graph
from zoo.io.progress import progress

UNLIMITED = 256  # longest input to compare for models without a maximum length
COMPARED_TOKENS = 64  # number of tokens to convert to float64 at once


class ReferenceBatch(NamedTuple):
    """A random batch, and what the model computes of it in torch."""

    lengths: list[int]  # number of tokens of each row
    inputs: Mapping[str, NDArray[Any]]  # inputs by name
    outputs: Mapping[str, NDArray[Any]]  # outputs by name, in float32


def run_reference(
    model: nn.Module, spec: OnnxSpec, config: Config, traced: tuple[int, int]
) -> list[ReferenceBatch]:
    """Run a model in torch on random batches that its graph is compared on."""
    # The batches are a single token, batches with padding, and one of the maximum length. All run
    # before the graph is loaded, so that only one copy of the weights is in memory
    references = []
    shapes = batches(spec.limits.get("tokens", UNLIMITED), traced)
    with progress("running in torch", len(shapes), unit="batches") as advance:
        for number, lengths in enumerate(shapes):
            inputs = random_inputs(spec, config, lengths, seed=number)
            with torch.inference_mode():
                outputs = {name: value.numpy() for name, value in model(**inputs).items()}
            arrays = {name: value.numpy() for name, value in inputs.items()}
            references.append(ReferenceBatch(lengths, arrays, outputs))
            advance(1)
    return references


def compare(
    references: Sequence[ReferenceBatch],
    graph: Path,
    spec: OnnxSpec,
    *,
    device: str = "cpu",
    adapter: Mapping[str, NDArray[Any]] | None = None,
) -> list[ShapeCheck]:
    """Compare a graph in ONNX Runtime with its model in torch."""
    session = create_session(graph, device)
    checks: list[ShapeCheck] = []
    with progress("comparing", len(references), unit="batches") as advance:
        for lengths, inputs, expected in references:
            results = run_graph(session, {**inputs, **(adapter or {})}, list(spec.outputs))
            real = axis_lengths(spec, lengths)
            outputs = {
                name: difference(name, expected[name], results[name], real, axes)
                for name, axes in spec.outputs.items()
            }
            checks.append(shape_check(lengths, outputs))
            advance(1)
    return checks


def shape_check(
    lengths: Sequence[int], outputs: dict[str, OutputDifference], past: int = 0
) -> ShapeCheck:
    """Return the comparison of a batch."""
    batch = len(lengths)
    tokens = max(lengths)
    padding = batch * tokens - sum(lengths)
    return ShapeCheck(batch=batch, tokens=tokens, padding=padding, outputs=outputs, past=past)


def batches(max_seq_len: int, traced: tuple[int, int]) -> list[list[int]]:
    """Return the number of tokens of each row, for batches of at least three shapes."""
    sizes = [(1, 1), (3, 17), (2, 64), (2, max_seq_len), (5, 5), (4, 3), (3, 2)]
    shapes = dict.fromkeys((batch, min(tokens, max_seq_len)) for batch, tokens in sizes)
    other_shapes = [shape for shape in shapes if shape != traced][:4]
    lengths = []
    for batch, tokens in other_shapes:
        lengths.append([max(1, tokens - row * tokens // batch) for row in range(batch)])
    return lengths


def difference(
    name: str,
    expected: NDArray[Any],
    actual: NDArray[Any],
    lengths: Mapping[str, Sequence[int]],
    axes: Sequence[str | int],
) -> OutputDifference:
    """Compare one output, a few tokens at a time, because all in float64 take too much memory."""
    gaps = []
    sizes = []
    products = []
    agree = []
    along = lengths.get(str(axes[1]))
    size = COMPARED_TOKENS
    for row in range(len(expected)):
        parts = [slice(None)]  # all of a row that is not one of tokens
        if along:
            parts = [slice(at, min(at + size, along[row])) for at in range(0, along[row], size)]
        for part in parts:
            a, b = (array[row][part].astype(np.float64) for array in (expected, actual))
            gaps.append(np.abs(a - b).max())
            sizes.append(np.abs(a).max())
            products.append((np.vdot(a, a), np.vdot(a, b), np.vdot(b, b)))
            agree.append(np.ravel(a.argmax(-1) == b.argmax(-1)))
    # np.max propagates NaN
    max_abs = float(np.max(gaps))
    scale = float(np.max(sizes))
    max_rel = max_abs / scale if scale else max_abs
    aa, ab, bb = np.sum(products, axis=0)
    cosine = 1.0
    if aa * bb:
        cosine = float(ab / np.sqrt(aa * bb))
    argmax = None
    if "logits" in name:
        argmax = float(np.concatenate(agree).mean())
    return OutputDifference(max_abs=max_abs, max_rel=max_rel, cosine=cosine, argmax=argmax)


def require_equal(
    checks: Sequence[ShapeCheck], tolerance: float, subject: str = "the graph"
) -> None:
    """Check that all differences are within the tolerance."""
    for check in checks:
        for name, result in check.outputs.items():
            where = f"at {check.batch} x {check.tokens} tokens{check.after}"
            if not math.isfinite(result.max_rel):
                raise VerificationError(
                    f"{name} of the model or its graph is NaN or infinite {where}",
                    "nothing was written; `zoo verify` looks for such weights",
                )
            if not result.max_rel <= tolerance:
                raise VerificationError(
                    f"{subject}'s {name} differs from torch by {result.max_rel:.1e} of the largest "
                    f"magnitude {where}, where {tolerance:.0e} is accepted",
                    "nothing was written",
                )


def worst(checks: Sequence[ShapeCheck]) -> Mapping[str, Any]:
    """Return the largest difference and the smallest agreement of the argmax."""
    shares = [check.argmax for check in checks if check.argmax is not None]
    return {
        "max_rel": max(check.worst for check in checks),
        "argmax_agreement": min(shares, default=None),
    }
