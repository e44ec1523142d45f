"""Keys and values of the tokens that a decoder has seen, kept so that none is computed twice."""

import torch
from torch import Tensor


class LayerCache:
    """One layer's keys and values, in storage with room for more.

    Args:
        max_new_tokens: number of tokens expected after the first call; the storage grows if more
            come.

    Attributes:
        length: how many tokens are held.
    """

    def __init__(self, max_new_tokens: int = 0) -> None:
        self.length, self._room = 0, max_new_tokens
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    @property
    def keys(self) -> Tensor:
        """(batch, heads, length, head_dim), a view."""
        assert self._keys is not None, "nothing was stored"
        return self._keys[:, :, : self.length]

    @property
    def values(self) -> Tensor:
        """(batch, heads, length, head_dim), a view."""
        assert self._values is not None, "nothing was stored"
        return self._values[:, :, : self.length]

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add tokens, and return the keys and values of all.

        Args:
            keys: (batch, heads, tokens, head_dim).
            values: the same.

        Returns:
            views of what is stored, (batch, heads, length, head_dim) each.
        """
        before, self.length = self.length, self.length + keys.shape[2]
        self._keys = self._fit(self._keys, keys, before)
        self._values = self._fit(self._values, values, before)
        self._keys[:, :, before : self.length] = keys
        self._values[:, :, before : self.length] = values
        return self.keys, self.values

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch, in the order given; a row may be kept several times."""
        assert self._keys is not None and self._values is not None, "nothing was stored"
        self._keys = self._keys.index_select(0, rows)
        self._values = self._values.index_select(0, rows)

    def _fit(self, stored: Tensor | None, new: Tensor, held: int) -> Tensor:
        """Return storage that holds what is stored, and has room for all."""
        if stored is not None and stored.shape[2] >= self.length:
            return stored
        size = self.length + (self._room if stored is None else self.length)
        batch, heads, _, width = new.shape
        larger = torch.empty(batch, heads, size, width, dtype=new.dtype, device=new.device)
        if stored is not None:
            larger[:, :, :held] = stored[:, :, :held]
        return larger


class KeyValueCache:
    """The caches of all layers of a decoder.

    Args:
        layers: how many.
        max_new_tokens: see ``LayerCache``.
    """

    def __init__(self, layers: int, max_new_tokens: int = 0) -> None:
        self.layers = [LayerCache(max_new_tokens) for _ in range(layers)]

    @property
    def length(self) -> int:
        """How many tokens all layers hold."""
        return self.layers[-1].length

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch in every layer; see ``LayerCache``."""
        for layer in self.layers:
            layer.select(rows)
