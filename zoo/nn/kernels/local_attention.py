"""Local attention: a token attends to a window around it, and scores outside cost nothing."""

import torch
from torch import Tensor

from zoo.nn.attention.masks import mask_value, packed_mask
from zoo.nn.global_tokens import find_global_tokens
from zoo.nn.kernels.packed_attention import kernel_is_usable, needs_masks
from zoo.nn.local_blocks import (
    SMALLEST_BLOCK,
    LocalAndGlobal,
    LocalBlocks,
    RowBlocks,
)
from zoo.nn.packed_attention import DocumentOffsets, one_segment_a_row
from zoo.nn.positions import Positions


def local_attention(
    x: Tensor,
    mask: Tensor | DocumentOffsets | None,
    positions: Positions,
    reach: int,
    *,
    in_graphs: bool = True,
) -> Tensor | DocumentOffsets | LocalBlocks | RowBlocks | LocalAndGlobal:
    """Return what restricts attention to a window, in the fastest form that is supported here.

    Args:
        x: embeddings, (batch, tokens, hidden).
        mask: what excludes padding and other documents, as in ``Encoder.attention_inputs``.
        positions: positions of the tokens, and those that have global attention.
        reach: number of tokens on each side of a query.
        in_graphs: whether exported graphs have blocks as well. Their memory is linear, and short
            rows take longer than with a mask, which ONNX Runtime fuses. With layers that attend to
            all tokens, memory is not linear in any case.
    """
    segments = positions.segments
    exporting = torch.compiler.is_exporting()
    is_global = positions.is_global
    tokens = None
    if is_global is not None:
        tokens = find_global_tokens(is_global, segments, x.dtype, positions.most_global)
    # Without segments, a mask of padding cannot be restricted to blocks.
    allows_blocks = not needs_masks() and (in_graphs or not exporting)
    if allows_blocks and (mask is None or segments is not None):
        if tokens is None and not exporting:
            documents = documents_on_device(x, mask, segments)
            if documents is not None:
                return documents._replace(reach=reach)
        size = max(reach, SMALLEST_BLOCK)
        if exporting or x.shape[1] > size + 2 * reach:
            if tokens is None and not exporting:
                return LocalBlocks.from_segments(segments, x, reach)
            blocks = RowBlocks.from_rows(
                segments, x, reach, reach, size=size, is_global=is_global, tokens=tokens
            )
            return blocks if tokens is None else LocalAndGlobal(blocks, tokens)
    if isinstance(mask, DocumentOffsets):
        assert segments is not None, "they are of documents"
        mask = packed_mask(segments, segments, x.dtype)
    if tokens is None:
        return window_mask(mask, positions, reach, x)
    return LocalAndGlobal(window_mask(mask, positions, reach, x), tokens)


def supports_causal_blocks(x: Tensor, positions: Positions, window: int) -> bool:
    """Return whether causal attention to a window is computed in blocks here.

    Rows have to be long enough for blocks to be faster than a mask, and to begin without cached
    tokens; and tokens that attend to each other have to be neighbours in them.

    Args:
        x: embeddings, (batch, tokens, hidden).
        positions: positions of the tokens.
        window: number of tokens that a token attends to, itself included.
    """
    if torch.compiler.is_compiling() or needs_masks():
        return False
    tokens = x.shape[1]
    if positions.keys.shape[1] != tokens or tokens <= 2 * max(window, SMALLEST_BLOCK):
        return False
    is_next = positions.queries.diff(dim=1) == 1
    segments = positions.segments
    if segments is None:
        return bool(is_next.all())
    goes_on = segments[:, 1:] == segments[:, :-1]
    is_padding = segments[:, 1:] == 0
    is_new = segments[:, 1:] > segments.cummax(dim=1).values[:, :-1]  # Not seen in the row before.
    return bool((is_padding | torch.where(goes_on, is_next, is_new)).all())


def causal_blocks(x: Tensor, positions: Positions, window: int) -> RowBlocks:
    """Return the blocks of causal attention to a window; see ``supports_causal_blocks``."""
    size = max(window // 2, SMALLEST_BLOCK)
    return RowBlocks.from_rows(positions.segments, x, window - 1, 0, size=size)


def documents_on_device(
    x: Tensor, mask: Tensor | DocumentOffsets | None, segments: Tensor | None
) -> DocumentOffsets | None:
    """Return the documents of a batch where the kernel on CUDA takes them, with a window."""
    if not x.is_cuda:
        return None
    if isinstance(mask, DocumentOffsets):
        return mask
    return offsets_of_rows(x, segments) if kernel_is_usable(x.dtype, x.device) else None


def window_mask(mask: Tensor | None, positions: Positions, reach: int, x: Tensor) -> Tensor:
    """Return a mask that excludes keys beyond the window, (batch or 1, 1, tokens, tokens)."""
    # All layers share it. Distances, of 8 bytes for each pair of tokens, are not computed.
    queries = positions.queries[:, None, :, None]
    keys = positions.keys[:, None, None, :]
    outside = (keys < queries - reach) | (keys > queries + reach)
    if positions.is_global is not None:
        outside = outside & ~positions.is_global[:, None, None, :]
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
