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
