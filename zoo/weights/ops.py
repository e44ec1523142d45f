"""Invertible rearrangements between one or several Hub tensors and one of ours."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.overrides import override

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]  # or a FileArray, which has the methods used here

Shape = tuple[int, ...]


class Op(ABC):
    """An invertible rearrangement of Hub tensors into one of ours."""

    # They move bytes without changing a value, so they work on dtypes that numpy cannot compute
    # with, and ``to_hub(from_hub(x)) == x`` holds bit for bit.

    parts: int = 1  # number of Hub tensors

    @abstractmethod
    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        """Return the shapes of the Hub tensors for the shape of ours."""

    @abstractmethod
    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        """Return arrays whose elements, one after the other, are our tensor, without a copy."""

    @abstractmethod
    def to_hub(self, array: "Array") -> "tuple[Array, ...]":
        """Return the Hub tensors for one of ours, as views where possible."""

    def rows_to_hub(self, rows: "Array") -> "Array":
        """Return values of our rows, (rows, ...), in the order of the Hub's rows."""
        # The rows of a linear map are its outputs. Of several Hub tensors, these are the rows of
        # one. By default the order is the same.
        return rows

    def rows_from_hub(self, rows: "Array") -> "Array":
        """Return values of the Hub's rows, (rows, ...), in the order of ours."""
        return rows

    def from_hub(self, arrays: "Sequence[Array]", shape: Shape) -> "Array":
        """Return our tensor for the Hub tensors, as one array of the given shape."""
        import numpy as np

        pieces = self.chunks(arrays)
        if len(pieces) == 1:
            return pieces[0].reshape(shape)
        return np.concatenate([piece.reshape(-1) for piece in pieces]).reshape(shape)


@dataclass(frozen=True)
class Identity(Op):
    """No rearrangement."""

    @override
    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        return (shape,)

    @override
    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        return arrays

    @override
    def to_hub(self, array: "Array") -> "tuple[Array, ...]":
        return (array,)


SAME = Identity()


@dataclass(frozen=True)
class Transpose(Op):
    """Reversal of all axes: matrices that are (in, out) on the Hub and (out, in) here."""

    @override
    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        return (shape[::-1],)

    @override
    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        return [array.T for array in arrays]  # the writer copies blocks of rows

    @override
    def to_hub(self, array: "Array") -> "tuple[Array, ...]":
        return (array.T,)


@dataclass(frozen=True)
class SplitHeads(Op):
    """A linear map whose heads have an axis of their own on the Hub.

    A map to the heads is (in, heads, head size) on the Hub and (heads * head size, in) here; one
    from the heads is (out, heads, head size) there and (out, heads * head size) here.

    Attributes:
        heads: number of attention heads.
        merges: whether the map is one from the heads.
    """

    heads: int
    merges: bool = False

    @override
    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        width, inner = shape if self.merges else shape[::-1]
        return ((width, self.heads, inner // self.heads),)

    @override
    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        width, heads, size = arrays[0].shape
        flat = arrays[0].reshape(width, heads * size)
        return [flat if self.merges else flat.T]

    @override
    def to_hub(self, array: "Array") -> "tuple[Array, ...]":
        flat = array if self.merges else array.T
        return (flat.reshape(flat.shape[0], self.heads, flat.shape[1] // self.heads),)


@dataclass(frozen=True)
class Concat(Op):
    """Concatenation along the first axis, for example of query, key and value.

    Attributes:
        parts: number of Hub tensors.
        sizes: rows of each; empty for equal parts.
    """

    parts: int = 3
    sizes: tuple[int, ...] = ()

    @override
    def hub_shapes(self, shape: Shape) -> tuple[Shape, ...]:
        return tuple((rows, *shape[1:]) for rows in self._rows(shape[0]))

    @override
    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        return arrays  # in row-major order, axis 0 is concatenated by writing one after another

    @override
    def to_hub(self, array: "Array") -> "tuple[Array, ...]":
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
    """Query, key and value interleaved head by head on the Hub, and concatenated here.

    Attributes:
        heads: number of attention heads.
    """

    heads: int

    @override
    def rows_to_hub(self, rows: "Array") -> "Array":
        return self.to_hub(rows)[0]

    @override
    def rows_from_hub(self, rows: "Array") -> "Array":
        return self.from_hub([rows], rows.shape)

    @override
    def chunks(self, arrays: "Sequence[Array]") -> "Sequence[Array]":
        return [part for parts in self._swapped(arrays[0], self.heads, 3) for part in parts]

    @override
    def to_hub(self, array: "Array") -> "tuple[Array, ...]":
        return (self._swapped(array, 3, self.heads).reshape(array.shape),)

    @staticmethod
    def _swapped(array: "Array", outer: int, inner: int) -> "Array":
        rows, *rest = array.shape
        return array.reshape(outer, inner, rows // (outer * inner), *rest).swapaxes(0, 1)
