"""Local attention: a token attends to a window around it, and scores outside cost nothing."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.attention.masks import mask_value, packed_mask
from zoo.nn.kernels.packed_attention import kernel_is_usable, needs_masks
from zoo.nn.packed_attention import DocumentOffsets, one_segment_a_row
from zoo.nn.positions import Positions

SMALLEST_BLOCK = 32  # queries


class LocalBlocks(NamedTuple):
    """Blocks of queries, and the keys that they reach."""

    # On CUDA in half precision, the kernel for documents of packed rows takes the window
    # (``zoo.nn.kernels.packed_attention``). Elsewhere, the tokens of all rows are one sequence that
    # is cut into blocks of queries. Each block has the keys that its windows reach, and a mask for
    # what else is among them: tokens that are too far from a query, of another row or document, and
    # padding. Exported graphs, captured attention and short rows have a mask of all pairs of
    # tokens.

    # added to the scores, (blocks, 1, queries, keys). Keys of a block are its queries and
    # ``reach`` tokens on each side
    mask: Tensor
    reach: int  # number of tokens on each side of a query

    @classmethod
    def of(
        cls, segments: Tensor | None, x: Tensor, reach: int, *, size: int | None = None
    ) -> "LocalBlocks":
        """Return the blocks of a batch, of ``size`` queries each, by default the fastest."""
        # segments: (batch, tokens), int64: tokens attend to tokens of the same number in their row,
        # such as the number of a document; ``None`` for all
        # x: a tensor with the dtype of the attention scores, (batch, tokens, hidden)
        batch, tokens, _ = x.shape
        size = max(reach, SMALLEST_BLOCK) if size is None else size
        rows = torch.arange(1, batch + 1, device=x.device)[:, None] << 32
        ids = (rows.expand(batch, tokens) if segments is None else rows + segments).flatten()
        spare = -len(ids) % size
        # the tokens before the first and after the last one are of no row
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


def local_attention(
    x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions, reach: int
) -> Tensor | DocumentOffsets | LocalBlocks:
    """Return what restricts attention to a window, in the fastest form that is supported here.

    Args:
        x: embeddings, (batch, tokens, hidden).
        mask: what excludes padding and other documents, as in ``Encoder.attention_inputs``.
        positions: positions of the tokens.
        reach: number of tokens on each side of a query.
    """
    segments = positions.segments
    # without segments, a mask of padding cannot be restricted to blocks
    if (
        not needs_masks()
        and not torch.compiler.is_exporting()
        and (mask is None or segments is not None)
    ):
        documents = mask if x.is_cuda and isinstance(mask, DocumentOffsets) else None
        if documents is None and x.is_cuda and kernel_is_usable(x.dtype, x.device):
            documents = offsets_of_rows(x, segments)
        if documents is not None:
            return documents._replace(reach=reach)
        if x.shape[1] > max(reach, SMALLEST_BLOCK) + 2 * reach:
            return LocalBlocks.of(segments, x, reach)
    if isinstance(mask, DocumentOffsets):
        assert segments is not None, "they are of documents"
        mask = packed_mask(segments, segments, x.dtype)
    return window_mask(mask, positions, reach, x)


def window_mask(mask: Tensor | None, positions: Positions, reach: int, x: Tensor) -> Tensor:
    """Return a mask that excludes keys beyond the window, (batch or 1, 1, tokens, tokens)."""
    # All layers share it. Distances, of 8 bytes for each pair of tokens, are not computed.
    queries = positions.queries[:, None, :, None]
    keys = positions.keys[:, None, None, :]
    outside = (keys < queries - reach) | (keys > queries + reach)
    inside = torch.zeros((), dtype=x.dtype, device=x.device) if mask is None else mask
    return torch.where(outside, mask_value(x.dtype), inside)


def offsets_of_rows(x: Tensor, segments: Tensor | None) -> DocumentOffsets | None:
    """Return the stretches that attention is restricted to, or ``None`` if segments are none."""
    # x: embeddings, (batch, tokens, hidden)
    batch, tokens, _ = x.shape
    if segments is None:
        offsets = torch.arange(batch + 1, device=x.device, dtype=torch.int32) * tokens
        return DocumentOffsets(offsets, tokens)
    return DocumentOffsets.of(segments) if one_segment_a_row(segments) else None
