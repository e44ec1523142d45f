"""Invertible operations between a Hub tensor (or several) and one of ours.

They move bytes and never change a value, so they work on storage dtypes that numpy cannot
compute with, and ``to_hub(to_ours(x)) == x`` holds to the bit.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]  # or a FileArray, which has the methods that are used here

Shape = tuple[int, ...]


class Op(ABC):
    """An invertible rearrangement of ``parts`` Hub tensors into one of ours."""

    parts: int = 1

    @abstractmethod
    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        """Return the shapes of the Hub tensors that make up one of ours."""

    @abstractmethod
    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        """Return arrays whose elements, one after the other, are our tensor: no copy is made."""

    @abstractmethod
    def to_hf(self, array: "Array") -> "tuple[Array, ...]":
        """Undo the operation, as views where possible."""

    def to_ours(self, arrays: "Sequence[Array]", shape: Shape) -> "Array":
        """Return our tensor as one array of the given shape."""
        import numpy as np

        pieces = self.chunks(arrays)
        if len(pieces) == 1:
            return pieces[0].reshape(shape)
        return np.concatenate([piece.reshape(-1) for piece in pieces]).reshape(shape)


@dataclass(frozen=True)
class Identity(Op):
    """The tensor as it is."""

    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        """See ``Op``."""
        return (shape,)

    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        """See ``Op``."""
        return arrays

    def to_hf(self, array: "Array") -> "tuple[Array, ...]":
        """See ``Op``."""
        return (array,)


SAME = Identity()


@dataclass(frozen=True)
class Transpose(Op):
    """A matrix stored (in, out) on the Hub and (out, in) here; a vector stays as it is.

    Of a tensor with more axes, such as a convolution's filters, all are reversed.
    """

    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        """See ``Op``."""
        return (shape[::-1],)

    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        """See ``Op``."""
        return [array.T for array in arrays]  # written by blocks of rows

    def to_hf(self, array: "Array") -> "tuple[Array, ...]":
        """See ``Op``."""
        return (array.T,)


@dataclass(frozen=True)
class Concat(Op):
    """Several tensors joined along their first axis, such as query, key and value.

    Attributes:
        parts: how many.
        sizes: rows of each, for parts that are not equal.
    """

    parts: int = 3
    sizes: tuple[int, ...] = ()

    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        """See ``Op``."""
        return tuple((rows, *shape[1:]) for rows in self._rows(shape[0]))

    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        """See ``Op``."""
        return arrays  # row-major: joining along axis 0 is writing one after the other

    def to_hf(self, array: "Array") -> "tuple[Array, ...]":
        """See ``Op``."""
        rows = self._rows(array.shape[0])
        starts = [sum(rows[:k]) for k in range(len(rows))]
        return tuple(array[start : start + n] for start, n in zip(starts, rows, strict=True))

    def _rows(self, total: int) -> tuple[int, ...]:
        rows = self.sizes or (total // self.parts,) * self.parts
        if sum(rows) != total:
            raise ValueError(f"{total} rows do not split into parts of {rows}")
        return rows


@dataclass(frozen=True)
class DeinterleaveQKV(Identity):
    """Query, key and value joined head by head; here, all heads of one stand together.

    Attributes:
        heads: how many.
    """

    heads: int

    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        """See ``Op``."""
        return [part for parts in self._swapped(arrays[0], self.heads, 3) for part in parts]

    def to_hf(self, array: "Array") -> "tuple[Array, ...]":
        """See ``Op``."""
        return (self._swapped(array, 3, self.heads).reshape(array.shape),)

    @staticmethod
    def _swapped(array: "Array", outer: int, inner: int) -> "Array":
        rows, *rest = array.shape
        return array.reshape(outer, inner, rows // (outer * inner), *rest).swapaxes(0, 1)
