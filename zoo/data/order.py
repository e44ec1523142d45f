"""Random orders of documents and of rows: permutations as a function of a key, without an array.

A run keeps the kind of its orders in its manifest (``DataOrder``). New runs have keyed orders: the
element at an index is computed from the index and the seed, so that a process has neither an array
to draw nor one to hold, whatever the number of rows. Runs that began before that have orders from
NumPy's generator, which are arrays; they are resumed with them.
"""

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from zoo.data.rng import generator, key_bytes
from zoo.overrides import override

# ``keyed`` for orders that are computed, ``arrays`` for orders that are drawn as arrays.
DataOrder: TypeAlias = Literal["keyed", "arrays"]
DEFAULT_ORDER: DataOrder = "keyed"
# A domain has at least 2**8 elements, so that the halves of the network mix in small ones.
MIN_BITS = 8
ROUND_PAIRS = 3  # Luby and Rackoff 1988 need two; small domains mix better with one more
_MASK = (1 << 64) - 1

Indices = NDArray[np.int64]


class Permutation(Protocol):
    """A permutation of the numbers from 0 to its length."""

    def __len__(self) -> int:
        """Return the number of elements."""

    def __getitem__(self, index: int) -> int:
        """Return the element at an index."""

    def take(self, indices: Indices) -> Indices:
        """Return the elements at some indices, (n,)."""


class KeyedPermutation(Permutation):
    """A permutation whose elements are computed one by one, by a Feistel network.

    The network permutes the numbers of a power of two, at most twice as many as there are elements
    (or 256). Where its result is not an element, it is applied again ("cycle walking", Black and
    Rogaway 2002, "Ciphers with arbitrary finite domains", section 3). Its round function is the
    finalizer of MurmurHash3 for 64 bits, of a half plus a key.

    Args:
        size: number of elements.
        seed: seed of the run.
        *purpose: the rest of the key, such as ``"order", epoch``.
    """

    def __init__(self, size: int, seed: int, *purpose: int | str) -> None:
        self.size = size
        bits = max(MIN_BITS, (size - 1).bit_length())
        self._low_bits = bits // 2
        self._low_mask = (1 << self._low_bits) - 1
        self._high_mask = (1 << (bits - self._low_bits)) - 1
        key = key_bytes(seed, purpose, 16 * ROUND_PAIRS)
        words = [int.from_bytes(key[at : at + 8], "little") for at in range(0, len(key), 8)]
        self._keys = list(zip(words[::2], words[1::2], strict=True))
        # In a small domain, most results are not elements. All of them are computed at once, which
        # takes as long as a few steps one by one.
        self._results: list[int] | None = None
        if bits == MIN_BITS:
            self._results = self._permute(np.arange(1 << bits, dtype=np.uint64)).tolist()

    @override
    def __len__(self) -> int:
        return self.size

    @override
    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"index {index} of {self.size} elements")
        step: Callable[[int], int] = self._permute
        if self._results is not None:
            step = self._results.__getitem__
        element: int = step(index)
        while element >= self.size:
            element = step(element)
        return element

    @override
    def take(self, indices: Indices) -> Indices:
        if self._results is not None:
            return np.array([self[index] for index in indices.tolist()], np.int64)
        elements: NDArray[np.uint64] = self._permute(indices.astype(np.uint64))
        outside = np.flatnonzero(elements >= self.size)
        while len(outside):
            elements[outside] = self._permute(elements[outside])
            outside = outside[elements[outside] >= self.size]
        return elements.astype(np.int64)

    def _permute(self, numbers: Any) -> Any:
        """Return what the network makes of a number of the domain, or of an array of uint64."""
        high = numbers >> self._low_bits
        low = numbers & self._low_mask
        for high_key, low_key in self._keys:
            high = high ^ (_mix(low + high_key & _MASK) & self._high_mask)
            low = low ^ (_mix(high + low_key & _MASK) & self._low_mask)
        return high << self._low_bits | low


def _mix(words: Any) -> Any:
    """Return ``fmix64`` of a word of 64 bits, or of an array of uint64 (Appleby, MurmurHash3)."""
    words = words ^ words >> 33
    words = words * 0xFF51AFD7ED558CCD & _MASK
    words = words ^ words >> 33
    words = words * 0xC4CEB9FE1A85EC53 & _MASK
    return words ^ words >> 33


class ArrayPermutation(Permutation):
    """A permutation that is drawn as an array, by NumPy's generator of the key."""

    def __init__(self, size: int, seed: int, *purpose: int | str) -> None:
        self._elements = generator(seed, *purpose).permutation(size)

    @override
    def __len__(self) -> int:
        return len(self._elements)

    @override
    def __getitem__(self, index: int) -> int:
        return int(self._elements[index])

    @override
    def take(self, indices: Indices) -> Indices:
        return self._elements[indices]


def permutation(kind: DataOrder, size: int, seed: int, *purpose: int | str) -> Permutation:
    """Return a random permutation of ``size`` numbers that a seed and a purpose decide."""
    if kind == "keyed":
        return KeyedPermutation(size, seed, *purpose)
    return ArrayPermutation(size, seed, *purpose)


class RowOrder(Protocol):
    """An endless sequence of indices into a dataset.

    The index at a position only depends on the position: a run is resumed without reading what came
    before, and any number of processes reads the same rows. ``PretrainSetup.row_order`` chooses the
    order of a run; an order over several datasets is another class of this kind.
    """

    def __getitem__(self, number: int) -> int:
        """Return the index at a position of the sequence."""


class EpochOrder(RowOrder):
    """Endless sequence of row indices: every epoch has each row once, in a new random order.

    Args:
        kind: kind of the orders.
        num_rows: number of rows.
        seed: seed of the run.
        *source: name of the source, where a run has several: each has an order of its own.
    """

    def __init__(self, kind: DataOrder, num_rows: int, seed: int, *source: str) -> None:
        self.kind = kind
        self.num_rows = num_rows
        self.seed = seed
        self.source = source
        self._current: tuple[int, Permutation] | None = None

    @override
    def __getitem__(self, number: int) -> int:
        epoch, position = divmod(number, self.num_rows)
        current = self._current
        if current is None or current[0] != epoch:
            order = permutation(self.kind, self.num_rows, self.seed, "order", epoch, *self.source)
            current = (epoch, order)
            self._current = current
        return current[1][position]
