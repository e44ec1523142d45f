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
        previous_length = self.length
        self.length = previous_length + keys.shape[2]
        self._keys = self._fit(self._keys, keys, previous_length)
        self._values = self._fit(self._values, values, previous_length)
        self._keys[:, :, previous_length : self.length] = keys
        self._values[:, :, previous_length : self.length] = values
        return self.keys, self.values

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch, in the given order; a row may be repeated."""
        assert self._keys is not None and self._values is not None, "the cache is empty"
        self._keys = self._keys.index_select(0, rows)
        self._values = self._values.index_select(0, rows)

    def _fit(self, storage: Tensor | None, new_states: Tensor, cached: int) -> Tensor:
        """Return storage for ``self.length`` tokens that holds the ``cached`` first ones."""
        if storage is not None and storage.shape[2] >= self.length:
            return storage
        # Growing doubles the size, so that copying costs a constant time per token.
        size = self.length + (self._reserve if storage is None else self.length)
        batch, heads, _, width = new_states.shape
        larger_storage = torch.empty(
            batch, heads, size, width, dtype=new_states.dtype, device=new_states.device
        )
        if storage is not None:
            larger_storage[:, :, :cached] = storage[:, :, :cached]
        return larger_storage


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
        # Within a forward pass, the last layer is behind all others.
        return self.layers[-1].length

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch in every layer, in the given order."""
        for layer in self.layers:
            layer.select(rows)
