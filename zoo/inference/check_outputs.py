"""Checks of graphs against what their family declares: a file may hold another model's graph."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.families.onnx import LOGITS, PAST, PRESENT, OnnxSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FLOATS = ("tensor(float)", "tensor(float16)", "tensor(double)")
REMEDY = "export the model again"


def check_signature(path: Path, session: Any, spec: OnnxSpec) -> None:
    """Compare the inputs and outputs of a graph with the declared ones.

    Args:
        path: the graph, for messages.
        session: the graph in ONNX Runtime.
        spec: names and axes of the model.

    Raises:
        VerificationError: a name, a type or a number of axes is another.
    """
    inputs, outputs = ({value.name: value for value in values} for values in _values(session))
    if set(inputs) != set(spec.inputs) or not set(spec.outputs) <= set(outputs):
        raise VerificationError(
            f"{path} takes {', '.join(inputs)} and returns {', '.join(outputs)}, where the model "
            f"takes {', '.join(spec.inputs)} and returns {', '.join(spec.outputs)}",
            REMEDY,
        )
    for name, axes in spec.inputs.items():
        _require(path, inputs[name], ("tensor(int64)",), len(axes))
    for name, axes in spec.outputs.items():
        _require(path, outputs[name], FLOATS, len(axes))


def check_cache(path: Path, session: Any, types: Sequence[str]) -> None:
    """Check the keys and values that a decoder takes and returns, and its scores.

    Args:
        path: the graph, for messages.
        session: the graph in ONNX Runtime.
        types: types that keys and values may have.

    Raises:
        VerificationError: one has another type or shape, or is not given back.
    """
    inputs, outputs = ({value.name: value for value in values} for values in _values(session))
    if LOGITS not in outputs or not any(name.startswith(PRESENT) for name in outputs):
        raise VerificationError(f"{path} returns no {LOGITS} or no keys and values", REMEDY)
    for name in outputs:
        if name.startswith(PRESENT):
            past = inputs.get(name.replace(PRESENT, PAST, 1))
            if past is None:
                raise VerificationError(f"{path} returns {name} and does not take it", REMEDY)
            _require(path, past, types, 4)
            if not all(isinstance(past.shape[axis], int) for axis in (1, 3)):
                raise VerificationError(f"{path}: {past.name} has the shape {past.shape}", REMEDY)


def check_result(
    graph: str,
    name: str,
    value: "NDArray[np.generic[Any]]",
    axes: Sequence[str | int],
    sizes: Mapping[str | int, int],
) -> None:
    """Compare the shape of what a graph returned with the declared axes.

    Args:
        graph: for messages.
        name: name of the output.
        value: the output.
        axes: its declared axes.
        sizes: axis -> size, of the axes that the inputs have.

    Raises:
        VerificationError: the number of axes or a size is another.
    """
    wanted = [axis if isinstance(axis, int) else sizes.get(axis) for axis in axes]
    fits = len(wanted) == value.ndim and all(
        size is None or size == actual for size, actual in zip(wanted, value.shape, strict=True)
    )
    if not fits:
        raise VerificationError(
            f"{graph}: the graph returns {name} of the shape {value.shape}, where "
            f"({', '.join(map(str, axes))}) is declared",
            REMEDY,
        )


def _values(session: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    return session.get_inputs(), session.get_outputs()


def _require(path: Path, value: Any, types: Sequence[str], rank: int) -> None:
    if value.type not in types or len(value.shape) != rank:
        raise VerificationError(
            f"{path}: {value.name} is a {value.type} with {len(value.shape)} axes, where "
            f"{types[0]} with {rank} is declared",
            REMEDY,
        )
