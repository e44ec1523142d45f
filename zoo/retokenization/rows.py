"""Values of the rows of a new vocabulary."""

from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3

from zoo.io.tensors.finite import require_finite
from zoo.retokenization.match import RowPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray


def new_values(
    name: str, values: "NDArray[Any]", plan: RowPlan, tokens: int, seed: int
) -> "NDArray[Any]":
    """Return a tensor, (vocabulary, ...), with the rows of a new vocabulary.

    A composed row is the mean of its parts. Random rows are normal, with the mean and the standard
    deviation that the rows of the old tokens have in each dimension; they depend on the seed, the
    name of the tensor and the id.

    Args:
        name: the name of the tensor.
        values: its old values.
        plan: where each row comes from.
        tokens: the size of the old vocabulary; further rows are padding.
        seed: the seed of random rows.
    """
    old_rows = values[:tokens].astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = old_rows.mean(0)
        deviation = old_rows.std(0)
    result = np.empty((plan.size, *values.shape[1:]), values.dtype)
    for number, old_number in plan.kept.items():
        result[number] = values[old_number]
    for number, parts in plan.composed.items():
        result[number] = old_rows[list(parts)].mean(0).astype(values.dtype)
    for number in plan.new:
        key = int.from_bytes(blake3(f"{seed}\0{name}\0{number}".encode()).digest(8))
        rng = np.random.Generator(np.random.Philox(key))
        noise = rng.standard_normal(values.shape[1:])
        result[number] = (mean + deviation * noise).astype(values.dtype)
    for number in (*plan.composed, *plan.new):
        row = {f"the row of token {number}": result[number].astype(np.float32)}
        require_finite(row, name, "the old rows are too large, or not finite: run `zoo verify`")
    return result
