"""The blocks of local attention; for what chooses them, see ``zoo.nn.kernels.local_attention``."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.attention.masks import mask_value

SMALLEST_BLOCK = 32  # Number of queries.


class LocalBlocks(NamedTuple):
    """Blocks of queries, and the keys that they reach."""

    # On CUDA in half precision, the kernel for documents of packed rows takes the window
    # (``zoo.nn.kernels.packed_attention``). Elsewhere, the tokens of all rows are one sequence that
    # is cut into blocks of queries. Each block has the keys that its windows reach, and a mask for
    # what else is among them: tokens that are too far from a query, of another row or document, and
    # padding. Exported graphs, captured attention and short rows have a mask of all pairs of
    # tokens.

    # Added to the scores, (blocks, 1, queries, keys). Keys of a block are its queries and
    # ``reach`` tokens on each side.
    mask: Tensor
    reach: int  # Number of tokens on each side of a query.

    @classmethod
    def from_segments(
        cls, segments: Tensor | None, x: Tensor, reach: int, *, size: int | None = None
    ) -> "LocalBlocks":
        """Return the blocks of a batch.

        Args:
            segments: (batch, tokens), int64: tokens attend to tokens of the same number in their
                row, such as the number of a document; ``None`` for all.
            x: a tensor with the dtype of the attention scores, (batch, tokens, hidden).
            reach: number of tokens on each side of a query.
            size: number of queries of a block; ``None`` for the fastest.
        """
        batch, tokens, _ = x.shape
        if size is None:
            size = max(reach, SMALLEST_BLOCK)
        rows = torch.arange(1, batch + 1, device=x.device)[:, None] << 32
        row_segments = rows.expand(batch, tokens) if segments is None else rows + segments
        ids = row_segments.flatten()
        spare = -len(ids) % size
        # Tokens before the first and after the last one do not belong to a row.
        keys = F.pad(ids, (reach, reach + spare)).unfold(0, size + 2 * reach, size)
        queries = F.pad(ids, (0, spare)).unflatten(0, (-1, size))  # type: ignore[no-untyped-call]
        query = torch.arange(size, device=x.device)[:, None]
        key = torch.arange(-reach, size + reach, device=x.device)
        masked = (queries[:, :, None] != keys[:, None, :]) | ((key - query).abs() > reach)
        return cls(masked[:, None].to(x.dtype) * mask_value(x.dtype), reach)

    def split(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of blocks, (blocks, heads, tokens, head_size) each."""
        # q, k, v: (batch, heads, tokens, head_size)
        reach = self.reach
        size = self.mask.shape[2]
        q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))  # (tokens, heads, head_size)
        spare = -len(q) % size
        queries = F.pad(q, (0, 0, 0, 0, 0, spare)).unflatten(0, (-1, size))  # type: ignore[no-untyped-call]
        keys, values = (
            F.pad(x, (0, 0, 0, 0, reach, reach + spare)).unfold(0, size + 2 * reach, size).mT
            for x in (k, v)
        )
        return queries.transpose(1, 2), keys, values

    def join(self, x: Tensor, like: Tensor) -> Tensor:
        """Return (blocks, heads, queries, head_size) as (batch, heads, tokens, head_size)."""
        batch, _, tokens, _ = like.shape
        flat = x.transpose(1, 2).flatten(0, 1)[: batch * tokens]
        return flat.unflatten(0, (batch, tokens)).transpose(1, 2)  # type: ignore[no-any-return, no-untyped-call]


class GlobalTokens(NamedTuple):
    """The tokens that all tokens of their text attend to, and that attend to all of them."""

    # (batch, globals), int64, all different in a row. Where a row has fewer global tokens than
    # another one, other tokens fill it up.
    indices: Tensor
    is_global: Tensor  # (batch, globals), bool: false for tokens that fill up a row.
    # Added to the scores of the global queries, (batch, 1, globals or 1, tokens), or ``None``.
    mask: Tensor | None

    def take(self, x: Tensor) -> Tensor:
        """Return the global tokens of (batch, tokens, width), (batch, globals, width)."""
        return x.gather(1, self.indices[..., None].expand(-1, -1, x.shape[-1]))

    def write(self, x: Tensor, values: Tensor) -> Tensor:
        """Return (batch, tokens, width) with the values of the global tokens in their places."""
        # Each place is written once, so that no gradient is counted twice.
        values = torch.where(self.is_global[..., None], values, self.take(x))
        return x.scatter(1, self.indices[..., None].expand(-1, -1, x.shape[-1]), values)


class RowBlocks(NamedTuple):
    """Blocks of queries of each row, and the keys that they reach: near ones and global ones."""

    # Unlike ``LocalBlocks``, a block belongs to one row, so that it has the global tokens of this
    # row as further keys. Exported graphs have these blocks for rows of any length.

    # Added to the scores, (batch * blocks, 1, queries, keys): of near keys, and of global ones.
    mask: Tensor
    blocks: int  # Number of blocks of a row; in exported graphs, a symbol, as the next three.
    size: int  # Number of queries of a block.
    width: int  # Number of near keys of a block.
    before: int  # Number of these before its first query.
    tokens: GlobalTokens | None
    key_indices: Tensor | None  # (blocks * keys,), int64, in exported graphs only.

    @classmethod
    def from_rows(
        cls,
        segments: Tensor | None,
        x: Tensor,
        before: int,
        after: int,
        *,
        size: int,
        is_global: Tensor | None = None,
        tokens: GlobalTokens | None = None,
    ) -> "RowBlocks":
        """Return the blocks of a batch.

        Args:
            segments: (batch, tokens), int64: tokens attend to tokens of the same number in their
                row; ``None`` for all.
            x: a tensor with the dtype of the attention scores, (batch, tokens, hidden).
            before: number of tokens before a query that it attends to.
            after: number of tokens after it.
            size: largest number of queries of a block.
            is_global: (batch, tokens), bool; ``None`` if no token is.
            tokens: the same tokens as indices.
        """
        batch, length, _ = x.shape
        exporting = torch.compiler.is_exporting()
        if exporting:
            # The length is a symbol. Blocks of short rows are short as well. The example of a
            # trace has two at least, since an axis of one would be taken for a constant.
            size = torch.sym_min(size, length // 2 + 1)  # type: ignore[no-untyped-call]
            width = torch.sym_min(size + before + after, length)  # type: ignore[no-untyped-call]
            blocks = (length + size - 1) // size
        else:  # Blocks of equal sizes need the least padding.
            blocks = -(-length // size)
            size = -(-length // blocks)
            width = size + before + after
        starts = torch.arange(blocks, device=x.device)[:, None] * size
        queries = starts + torch.arange(size, device=x.device)
        first_keys = starts - before
        if exporting:  # The first and the last blocks have no keys outside of the row.
            first_keys = first_keys.clamp(min=0).clamp(max=length - width)
        keys = first_keys + torch.arange(width, device=x.device)
        distance = keys[:, None, :] - queries[:, :, None]
        masked = (distance < -before) | (distance > after)
        masked = masked | ((keys < 0) | (keys >= length))[:, None, :]
        masked = masked[None].expand(batch, -1, -1, -1)  # (batch, blocks, queries, keys)
        key_indices = keys.clamp(0, length - 1).flatten()
        query_indices = queries.clamp(max=length - 1).flatten()
        query_segments = None
        if segments is not None:
            query_segments = segments[:, query_indices].view(batch, blocks, size)
            key_segments = segments[:, key_indices].view(batch, *keys.shape)
            masked = masked | (query_segments[..., None] != key_segments[:, :, None, :])
        if tokens is not None:
            assert is_global is not None, "they are the same tokens"
            near_is_global = is_global[:, key_indices].view(batch, *keys.shape)
            masked = masked | near_is_global[:, :, None, :]  # It is among the global keys.
            global_masked = ~tokens.is_global[:, None, None, :]
            if segments is not None:
                assert query_segments is not None, "they are the queries' segments"
                global_segments = segments.gather(1, tokens.indices)[:, None, None, :]
                global_masked = global_masked | (query_segments[..., None] != global_segments)
            shape = (*masked.shape[:3], tokens.indices.shape[1])
            masked = torch.cat([masked, global_masked.expand(shape)], dim=-1)
        mask = masked.flatten(0, 1)[:, None].to(x.dtype) * mask_value(x.dtype)
        exported_indices = key_indices if exporting else None
        return cls(mask, blocks, size, width, before, tokens, exported_indices)

    def split(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of blocks, (blocks, heads, tokens, head_size) each."""
        # q, k, v: (batch, heads, tokens, head_size)
        spare = self.blocks * self.size - q.shape[2]
        queries = F.pad(q, (0, 0, 0, spare)).unflatten(2, (self.blocks, self.size))  # type: ignore[no-untyped-call]
        queries = queries.transpose(1, 2).flatten(0, 1)
        return queries, self._keys(k, spare), self._keys(v, spare)

    def _keys(self, x: Tensor, spare: int) -> Tensor:
        """Return keys or values of blocks, the near ones and the global ones."""
        if self.key_indices is not None:
            near = x.index_select(2, self.key_indices)
            near = near.unflatten(2, (self.blocks, self.width))  # type: ignore[no-untyped-call]
        else:
            after = self.width - self.size - self.before
            padded = F.pad(x, (0, 0, self.before, after + spare))
            near = padded.unfold(2, self.width, self.size).mT
        near = near.transpose(1, 2)  # (batch, blocks, heads, keys, head_size)
        if self.tokens is not None:
            indices = self.tokens.indices[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3])
            global_keys = x.gather(2, indices)[:, None].expand(-1, self.blocks, -1, -1, -1)
            near = torch.cat([near, global_keys], dim=-2)
        return near.flatten(0, 1)

    def join(self, x: Tensor, like: Tensor) -> Tensor:
        """Return (blocks, heads, queries, head_size) as (batch, heads, tokens, head_size)."""
        rows = x.unflatten(0, (like.shape[0], self.blocks))  # type: ignore[no-untyped-call]
        return rows.transpose(1, 2).flatten(2, 3)[:, :, : like.shape[2]]  # type: ignore[no-any-return]


class LocalAndGlobal(NamedTuple):
    """What restricts attention to windows and to global tokens."""

    local: Tensor | RowBlocks  # Of all queries: windows, and the global keys.
    tokens: GlobalTokens
