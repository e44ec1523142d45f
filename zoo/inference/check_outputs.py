"""Checks of ONNX graphs and their outputs against the specification of the family."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.families.onnx import LOGITS, NUM_LOGITS, PAST, PRESENT, OnnxSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FLOATS = ("tensor(float)", "tensor(float16)", "tensor(double)")
IDS = "input_ids"
TYPES = "token_type_ids"
REMEDY = "export the model again"


def check_signature(path: Path, session: Any, spec: OnnxSpec) -> None:
    """Compare the inputs and outputs of a graph with the specification.

    A graph may take token types that the model has no use for, see ``unused_inputs``.
    """
    inputs = _by_name(session.get_inputs())
    outputs = _by_name(session.get_outputs())
    unused = unused_inputs(session, spec)
    for name in unused:
        _require(path, inputs[name], ("tensor(int64)",), len(spec.inputs[IDS]))
    if set(inputs) != {*spec.inputs, *unused} or not set(spec.outputs) <= set(outputs):
        raise VerificationError(
            f"{path} takes {', '.join(inputs)} and returns {', '.join(outputs)}, where the model "
            f"takes {', '.join(spec.inputs)} and returns {', '.join(spec.outputs)}",
            REMEDY,
        )
    for name, axes in spec.inputs.items():
        _require(path, inputs[name], ("tensor(int64)",), len(axes))
    for name, axes in spec.outputs.items():
        _require(path, outputs[name], FLOATS, len(axes))


def unused_inputs(session: Any, spec: OnnxSpec) -> tuple[str, ...]:
    """Return the inputs of a graph that are always zeros: token types where there is one type.

    Exports of zoo 0.2 take them.
    """
    names = {value.name for value in session.get_inputs()}
    if TYPES in names and TYPES not in spec.inputs and IDS in spec.inputs:
        return (TYPES,)
    return ()


def check_cache(path: Path, session: Any, types: Sequence[str]) -> None:
    """Check the logits and the key-value cache of a decoder graph, and its limit of logits."""
    inputs = _by_name(session.get_inputs())
    outputs = _by_name(session.get_outputs())
    if LOGITS not in outputs or not any(name.startswith(PRESENT) for name in outputs):
        raise VerificationError(f"{path} returns no {LOGITS} or no keys and values", REMEDY)
    _require(path, outputs[LOGITS], types, 3)
    if NUM_LOGITS not in (value.name for value in session.get_overridable_initializers()):
        raise VerificationError(f"{path} has no input {NUM_LOGITS} with a default", REMEDY)
    for name in outputs:
        if not name.startswith(PRESENT):
            continue
        past = inputs.get(name.replace(PRESENT, PAST, 1))
        if past is None:
            raise VerificationError(f"{path} returns {name} and does not take it", REMEDY)
        _require(path, past, types, 4)
        _, heads, _, head_size = past.shape
        if not isinstance(heads, int) or not isinstance(head_size, int):
            raise VerificationError(f"{path}: {past.name} has the shape {past.shape}", REMEDY)


def check_result(
    graph: str,
    name: str,
    value: "NDArray[np.generic[Any]]",
    axes: Sequence[str | int],
    sizes: Mapping[str | int, int],
) -> None:
    """Compare the shape of an output with the specification."""
    fits = len(axes) == value.ndim
    if fits:
        for axis, actual_size in zip(axes, value.shape, strict=True):
            expected_size = axis if isinstance(axis, int) else sizes.get(axis)
            if expected_size is not None and expected_size != actual_size:
                fits = False
    if not fits:
        raise VerificationError(
            f"{graph}: the graph returns {name} of the shape {value.shape}, where "
            f"({', '.join(map(str, axes))}) is declared",
            REMEDY,
        )


def _by_name(values: Sequence[Any]) -> dict[str, Any]:
    return {value.name: value for value in values}


def _require(path: Path, value: Any, types: Sequence[str], rank: int) -> None:
    if value.type not in types or len(value.shape) != rank:
        raise VerificationError(
            f"{path}: {value.name} is a {value.type} with {len(value.shape)} axes, where "
            f"{types[0]} with {rank} is declared",
            REMEDY,
        )
