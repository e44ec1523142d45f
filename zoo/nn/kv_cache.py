"""Caches of keys and values, so that generation computes them once for each token."""

import torch
from torch import Tensor


class LayerCache:
    """The keys and values of one layer, in storage that is allocated ahead.

    Args:
        max_new_tokens: number of tokens expected after the first call of ``extend``; the storage
            grows if more come.

    Attributes:
        length: number of cached tokens.
    """

    def __init__(self, max_new_tokens: int = 0) -> None:
        self.length = 0
        self._reserve = max_new_tokens
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def keys(self) -> Tensor:
        """The keys, (batch, heads, length, head_size), a view."""
        assert self._keys is not None, "the cache is empty"
        return self._keys[:, :, : self.length]

    @property
    def values(self) -> Tensor:
        """The values, (batch, heads, length, head_size), a view."""
        assert self._values is not None, "the cache is empty"
        return self._values[:, :, : self.length]

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new tokens, and return all.

        Args:
            keys: (batch, heads, tokens, head_size).
            values: (batch, heads, tokens, head_size).

        Returns:
            views of the storage, (batch, heads, length, head_size) each.
        """
        before = self.length
        self.length = self.length + keys.shape[2]
        self._keys = self._fit(self._keys, keys, before)
        self._values = self._fit(self._values, values, before)
        self._keys[:, :, before : self.length] = keys
        self._values[:, :, before : self.length] = values
        return self.keys, self.values

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch, in the given order; a row may be repeated."""
        assert self._keys is not None and self._values is not None, "the cache is empty"
        self._keys = self._keys.index_select(0, rows)
        self._values = self._values.index_select(0, rows)

    def _fit(self, stored: Tensor | None, new: Tensor, cached: int) -> Tensor:
        """Return storage for ``self.length`` tokens that holds the ``cached`` first ones."""
        if stored is not None and stored.shape[2] >= self.length:
            return stored
        # growing doubles the size, so that copying costs a constant time per token
        size = self.length + (self._reserve if stored is None else self.length)
        batch, heads, _, width = new.shape
        larger = torch.empty(batch, heads, size, width, dtype=new.dtype, device=new.device)
        if stored is not None:
            larger[:, :, :cached] = stored[:, :, :cached]
        return larger


class KeyValueCache:
    """The keys and values of all layers of a decoder.

    Args:
        layers: number of layers.
        max_new_tokens: number of tokens for which memory is reserved; see ``LayerCache``.
    """

    def __init__(self, layers: int, max_new_tokens: int = 0) -> None:
        self.layers = [LayerCache(max_new_tokens) for _ in range(layers)]

    @property
    def length(self) -> int:
        """Number of tokens cached in every layer."""
        return self.layers[-1].length  # the last one: within a forward pass it is behind the others

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch in every layer, in the given order."""
        for layer in self.layers:
            layer.select(rows)
