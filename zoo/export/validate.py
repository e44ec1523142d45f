"""The gate: a graph is published if it computes what torch computes, where it was not traced."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from zoo.backends.runtime import run_graph, start
from zoo.config import Config
from zoo.errors import VerificationError
from zoo.export.report import Difference, ShapeCheck
from zoo.export.spec import OnnxSpec
from zoo.testing.draws import draw_inputs

Floats = NDArray[np.float64]
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
    session = start(graph)
    checks: list[ShapeCheck] = []
    for lengths in batches(spec.limits.get("tokens", UNLIMITED), traced):
        inputs = draw_inputs(spec, config, lengths, seed=len(checks))
        with torch.inference_mode():
            expected = {name: _array(value) for name, value in model(**inputs).items()}
        arrays = {name: value.numpy() for name, value in inputs.items()}
        found = run_graph(session, arrays, list(spec.outputs))
        real = np.arange(max(lengths)) < np.array(lengths)[:, None]  # (batch, tokens)
        outputs = {
            name: difference(name, expected[name], found[name].astype(np.float64), real, axes)
            for name, axes in spec.outputs.items()
        }
        padding = int((~real).sum())
        checks.append(
            ShapeCheck(batch=len(lengths), tokens=max(lengths), padding=padding, outputs=outputs)
        )
    return checks


def batches(longest: int, traced: tuple[int, int]) -> list[list[int]]:
    """Return the real tokens of each row of each batch, for at least three other shapes.

    Args:
        longest: how many tokens the model takes.
        traced: the batch and tokens to leave out.
    """
    sizes = [(1, 1), (3, 17), (2, 64), (2, longest), (5, 5), (4, 3), (3, 2)]
    shapes = dict.fromkeys((batch, min(tokens, longest)) for batch, tokens in sizes)
    kept = [shape for shape in shapes if shape != traced][:4]
    return [
        [max(1, tokens - row * tokens // batch) for row in range(batch)] for batch, tokens in kept
    ]


def difference(
    name: str, expected: Floats, found: Floats, real: NDArray[np.bool_], axes: Sequence[str | int]
) -> Difference:
    """Compare one output.

    Args:
        name: of the output; logits are compared by their largest entries too.
        expected: what torch computed.
        found: what the graph computed.
        real: (batch, tokens), false at padding, whose values mean nothing.
        axes: the output's; padding is left out where it runs over tokens.
    """
    agreement = _argmax_agreement(expected, found, real, axes) if "logits" in name else None
    if tuple(axes[:2]) == ("batch", "tokens"):
        expected, found = expected[real], found[real]
    max_abs = float(np.abs(expected - found).max())
    scale = float(np.abs(expected).max())
    norms = float(np.linalg.norm(expected) * np.linalg.norm(found))
    return Difference(
        max_abs=max_abs,
        max_rel=max_abs / scale if scale else max_abs,
        cosine=float(np.vdot(expected, found)) / norms if norms else 1.0,
        argmax=agreement,
    )


def _argmax_agreement(
    expected: Floats, found: Floats, real: NDArray[np.bool_], axes: Sequence[str | int]
) -> float:
    if axes[-1] == "tokens":  # a score for each token: padding must not win
        expected, found = np.where(real, expected, -np.inf), np.where(real, found, -np.inf)
    elif "tokens" in axes:
        expected, found = expected[real], found[real]
    return float((expected.argmax(-1) == found.argmax(-1)).mean())


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
                    f"magnitude at {check.batch} x {check.tokens} tokens, where {tolerance:.0e} "
                    "is accepted",
                    "nothing was written",
                )


def _array(value: Tensor) -> Floats:
    return value.numpy().astype(np.float64)


def worst(checks: Sequence[ShapeCheck]) -> Mapping[str, Any]:
    """Return the summary of a report: the largest difference, the smallest agreement."""
    shares = [check.argmax for check in checks if check.argmax is not None]
    return {
        "max_rel": max(check.worst for check in checks),
        "argmax_agreement": min(shares, default=None),
    }
