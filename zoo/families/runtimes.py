"""What families declare for the formats of other runtimes: names of tensors, and settings.

A family's module ``runtimes`` has a function for each export target that holds it, with the name
of the target: ``gguf(config, head)`` returns a ``RuntimeModel``, or the reason why the format
cannot hold the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zoo.overrides import override
from zoo.weights import Concat, Op, Rule, WeightMap
from zoo.weights.ops import SAME, Shape

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]

QKV = Concat(3)
Names = Mapping[str | tuple[str, ...], str | tuple[str, Op]]


@dataclass(frozen=True)
class RuntimeModel:
    """A model as the format of a runtime describes it.

    Attributes:
        architecture: name of the architecture in the format.
        settings: its settings, by the format's names.
        weights: rules from the format's tensor names to ours.
        copies: tensor of the format -> tensor of ours that it has the values of, for tied weights
            that the format stores twice.
        tokenizer: keys of the kind of tokenizer, in formats that describe one.
    """

    architecture: str
    settings: Mapping[str, Any]
    weights: WeightMap
    copies: Mapping[str, str] = field(default_factory=dict)
    tokenizer: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SkipRows(Op):
    """The first rows are missing there: of positions that no text has."""

    # On the way back they are zero, so this operation is not invertible.

    rows: int = 0

    @override
    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        return ((shape[0] - self.rows, *shape[1:]),)

    @override
    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        import numpy as np

        (array,) = arrays
        return [np.zeros((self.rows, *array.shape[1:]), array.dtype), array]

    @override
    def to_hub(self, array: "Array") -> "tuple[Array, ...]":
        return (array[self.rows :],)


@dataclass(frozen=True)
class FirstRow(Op):
    """The one row of a matrix is a vector there."""

    @override
    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        return (shape[1:],)

    @override
    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        return arrays

    @override
    def to_hub(self, array: "Array") -> "tuple[Array, ...]":
        return (array[0],)


def runtime_weights(names: Names, model: WeightMap, counts: Mapping[str, int]) -> WeightMap:
    """Return the rules from the tensor names of a format to ours.

    Args:
        names: template of the format's name, or of several that an operation joins -> ours, with
            the operation; templates have the placeholders of ``WeightMap``.
        model: the family's rules, which know the shapes of our tensors.
        counts: number of values of each numeric placeholder.
    """
    shapes = {entry.target: entry.shape for entry in model.entries()}
    first = dict.fromkeys(counts, "0")
    rules = []
    for theirs, ours in names.items():
        target, op = (ours, SAME) if isinstance(ours, str) else ours
        shape = shapes[target.format(**first, p="weight")]
        rules.append(Rule(theirs, target, shape, op))
    return WeightMap(rules=rules, counts=counts)


def layered(prefix: str, names: Names, ours: str = "layers.{i}.") -> dict[Any, Any]:
    """Return names within a block, with the prefixes of the format's block and of ours."""
    found: dict[Any, Any] = {}
    for theirs, target in names.items():
        parts = (theirs,) if isinstance(theirs, str) else theirs
        full = tuple(prefix + part for part in parts)
        key = full[0] if len(full) == 1 else full
        found[key] = ours + target if isinstance(target, str) else (ours + target[0], target[1])
    return found
