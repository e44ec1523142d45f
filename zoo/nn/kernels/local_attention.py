"""Local attention: a token attends to a window around it, and scores outside cost nothing."""

import torch
from torch import Tensor

from zoo.nn.attention.masks import mask_value, packed_mask
from zoo.nn.kernels.packed_attention import kernel_is_usable, needs_masks
from zoo.nn.local_blocks import SMALLEST_BLOCK, LocalBlocks
from zoo.nn.packed_attention import DocumentOffsets, one_segment_a_row
from zoo.nn.positions import Positions


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
            return LocalBlocks.from_segments(segments, x, reach)
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
