"""The gate: a graph is published if it computes what torch computes, where it was not traced."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from zoo.errors import VerificationError
from zoo.export.report import Difference, ShapeCheck
from zoo.families.config import Config
from zoo.families.onnx import LOGITS, OnnxSpec
from zoo.families.random_inputs import axis_lengths, random_inputs
from zoo.inference.ort import create_session, run_graph
from zoo.inference.ort_decoder import OrtDecoder

UNLIMITED = 256  # the longest input that is tried where a model takes any length


def compare(
    model: nn.Module, graph: Path, spec: OnnxSpec, config: Config, traced: tuple[int, int]
) -> list[ShapeCheck]:
    """Run a graph in ONNX Runtime and its model in torch, on the same random batches.

    The batches are a single token, padded ones, and one of the longest input the model takes.

    Args:
        model: in evaluation mode, on the CPU.
        graph: the file.
        spec: names and axes.
        config: the model's, for the range of the tokens.
        traced: batch and tokens of the traced example, which is not tried.
    """
    session = create_session(graph)
    checks: list[ShapeCheck] = []
    for lengths in batches(spec.limits.get("tokens", UNLIMITED), traced):
        inputs = random_inputs(spec, config, lengths, seed=len(checks))
        with torch.inference_mode():
            expected = {name: value.numpy() for name, value in model(**inputs).items()}
        arrays = {name: value.numpy() for name, value in inputs.items()}
        found = run_graph(session, arrays, list(spec.outputs))
        outputs = {
            name: difference(name, expected[name], found[name], axis_lengths(spec, lengths), axes)
            for name, axes in spec.outputs.items()
        }
        checks.append(_check(lengths, outputs))
    return checks


def compare_with_cache(
    model: nn.Module, graphs: OrtDecoder, spec: OnnxSpec, config: Config, traced: tuple[int, int]
) -> list[ShapeCheck]:
    """Compare like ``compare``, where graphs keep keys and values.

    Each batch is read at once after an empty cache; and in two runs, of which the second is given
    the cache of the first. Then texts that are continued are padded on the left, as they are when
    a model goes on with them.

    Args:
        model: in evaluation mode, on the CPU; it reads each batch at once, without a cache.
        graphs: ready to run.
        spec: names and axes of the model as it is.
        config: see ``compare``.
        traced: likewise.
    """
    checks: list[ShapeCheck] = []
    axes = spec.outputs[LOGITS]
    for number, lengths in enumerate(batches(spec.limits.get("tokens", UNLIMITED), traced)):
        inputs = random_inputs(spec, config, lengths, seed=number)
        with torch.inference_mode():
            expected = model(**inputs)[LOGITS].numpy()
        arrays = {name: value.numpy() for name, value in inputs.items()}
        width, real = arrays[graphs.target].shape[1], axis_lengths(spec, lengths)
        for past in dict.fromkeys((0, (width // 2, width - 1)[number % 2])):
            if past and graphs.target == "input_ids":
                moved = {name: _rolled(array, lengths, 1) for name, array in arrays.items()}
                found = _rolled(graphs.whole(moved, past), lengths, -1)
            else:
                found = graphs.whole(arrays, past)
            outputs = {LOGITS: difference(LOGITS, expected, found, real, axes)}
            checks.append(_check(lengths, outputs, past))
    return checks


def _rolled(array: NDArray[Any], lengths: Sequence[int], way: int) -> NDArray[Any]:
    """Move the texts of a batch to its other side, (batch, tokens, ...)."""
    width = array.shape[1]
    rows = zip(array, lengths, strict=True)
    return np.stack([np.roll(row, way * (width - length), axis=0) for row, length in rows])


def _check(lengths: Sequence[int], outputs: dict[str, Difference], past: int = 0) -> ShapeCheck:
    batch, tokens = len(lengths), max(lengths)
    padding = batch * tokens - sum(lengths)
    return ShapeCheck(batch=batch, tokens=tokens, padding=padding, outputs=outputs, past=past)


def batches(max_seq_len: int, traced: tuple[int, int]) -> list[list[int]]:
    """Return the real tokens of each row of each batch, for at least three other shapes.

    Args:
        max_seq_len: how many tokens the model takes.
        traced: the batch and tokens to leave out.
    """
    sizes = [(1, 1), (3, 17), (2, 64), (2, max_seq_len), (5, 5), (4, 3), (3, 2)]
    shapes = dict.fromkeys((batch, min(tokens, max_seq_len)) for batch, tokens in sizes)
    kept = [shape for shape in shapes if shape != traced][:4]
    return [
        [max(1, tokens - row * tokens // batch) for row in range(batch)] for batch, tokens in kept
    ]


def difference(
    name: str,
    expected: NDArray[Any],
    found: NDArray[Any],
    lengths: Mapping[str, Sequence[int]],
    axes: Sequence[str | int],
) -> Difference:
    """Compare one output, row by row: in float64 a whole batch would fill the memory.

    Args:
        name: of the output; logits are compared by their largest entries too.
        expected: what torch computed.
        found: what the graph computed.
        lengths: axis -> the real places of each row along it. What follows them is padding,
            whose values mean nothing, and is left out where the output has that axis.
        axes: the output's, beginning with the batch.
    """
    gaps, sizes, products, agree = [], [], [], []
    along = lengths.get(str(axes[1]))
    for row in range(len(expected)):
        real = slice(along[row] if along else None)
        a, b = (array[row][real].astype(np.float64) for array in (expected, found))
        gaps.append(np.abs(a - b).max())
        sizes.append(np.abs(a).max())
        products.append((np.vdot(a, a), np.vdot(a, b), np.vdot(b, b)))
        agree.append(np.ravel(a.argmax(-1) == b.argmax(-1)))
    max_abs, scale = float(np.max(gaps)), float(np.max(sizes))  # both keep a NaN
    aa, ab, bb = np.sum(products, axis=0)
    return Difference(
        max_abs=max_abs,
        max_rel=max_abs / scale if scale else max_abs,
        cosine=float(ab / np.sqrt(aa * bb)) if aa * bb else 1.0,
        argmax=float(np.concatenate(agree).mean()) if "logits" in name else None,
    )


def require_equal(checks: Sequence[ShapeCheck], tolerance: float) -> None:
    """Stop unless every difference is within the tolerance.

    Raises:
        VerificationError: one is not, or is not a number.
    """
    for check in checks:
        for name, found in check.outputs.items():
            if not found.max_rel <= tolerance:
                raise VerificationError(
                    f"the graph's {name} differs from torch by {found.max_rel:.1e} of the largest "
                    f"magnitude at {check.batch} x {check.tokens} tokens{check.after}, where "
                    f"{tolerance:.0e} is accepted",
                    "nothing was written",
                )


def worst(checks: Sequence[ShapeCheck]) -> Mapping[str, Any]:
    """Return the summary of a report: the largest difference, the smallest agreement."""
    shares = [check.argmax for check in checks if check.argmax is not None]
    return {
        "max_rel": max(check.worst for check in checks),
        "argmax_agreement": min(shares, default=None),
    }
