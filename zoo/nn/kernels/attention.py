"""Attention: torch's kernel, or what is faster on CPUs in training and for packed rows."""

import functools

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.attention.softcap import softcapped_attention
from zoo.nn.capture import is_capturing_attention
from zoo.nn.kernels.attention_blocks import (
    HALF,
    attend_in_blocks,
    can_use_blocks,
    later_keys,
    row_blocks,
)
from zoo.nn.kernels.dropout import dropout as drop
from zoo.nn.kernels.gathered_attention import Gather, attend_gathered, can_gather_again
from zoo.nn.kernels.packed_attention import attend_documents
from zoo.nn.local_blocks import LocalBlocks, RowBlocks
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.sparse_blocks import BlockSparse, GraphBlocks, SparseBlocks

# to which attention in half precision without dropout is trained by single products
HALF_PRECISION_TOKENS = 512


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | DocumentOffsets | LocalBlocks | RowBlocks | BlockSparse | None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
    cap: float | None = None,
) -> Tensor:
    """Return softmax(q k^T scale + mask) v, by the fastest way that is supported here.

    Args:
        q: (batch, heads, queries, head_size).
        k: (batch, heads, keys, head_size).
        v: (batch, heads, keys, head_size).
        mask: added to the scores, broadcast to (batch, heads, queries, keys); or the documents that
            attention is restricted to, or the blocks of local or block-sparse attention, where
            queries and keys are the same tokens. Block-sparse attention has no dropout, as in the
            released code.
        cap: bound of the scores, see ``softcap``; the mask is no documents then.

    Returns:
        (batch, heads, queries, head_size).
    """
    if isinstance(mask, LocalBlocks | RowBlocks):
        parts = attend_blocks(q, k, v, mask.mask, mask.split, dropout=dropout, scale=scale, cap=cap)
        return mask.join(parts, q)
    if isinstance(mask, SparseBlocks):
        attend_keys = functools.partial(attend, scale=scale, cap=cap)
        attend_parts = functools.partial(attend_blocks, scale=scale, cap=cap)
        return mask.attend(q, k, v, attend_keys, attend_parts)
    if isinstance(mask, GraphBlocks):
        return mask.attend(q, k, v, functools.partial(attend, scale=scale, cap=cap))
    if cap is not None:
        assert not isinstance(mask, DocumentOffsets), "Encoder.adds_bias is not True"
        return softcapped_attention(q, k, v, mask, dropout, causal, scale, cap=cap)
    if isinstance(mask, DocumentOffsets):
        return attend_documents(q, k, v, mask, dropout=dropout, scale=scale)
    if dropout and can_use_blocks(q, k, v, mask=mask, dropout=dropout):
        return attend_in_blocks(
            q, k, v, row_blocks(q, k), mask=mask, causal=causal, dropout=dropout, scale=scale
        )
    if supports_products(q, k, dropout):
        return attend_by_products(q, k, v, mask, causal, dropout, scale)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
    )


def attend_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    gather: Gather,
    *,
    dropout: float = 0.0,
    scale: float | None = None,
    cap: float | None = None,
) -> Tensor:
    """Return the attention of the blocks that ``gather`` returns of queries, keys and values.

    For the other arguments, see ``attend``; ``mask`` is that of the blocks.
    """
    if cap is None and can_gather_again(q, mask, dropout):
        return attend_gathered(q, k, v, mask, gather, scale)
    return attend(*gather(q, k, v), mask, dropout=dropout, scale=scale, cap=cap)


def supports_products(q: Tensor, k: Tensor, dropout: float) -> bool:
    """Return whether attention is computed by single products and a softmax, on CPUs only."""
    # With dropout, torch has no fused kernel on CPUs. In half precision, the backward pass of its
    # kernel takes several times as long as the products, up to ``HALF_PRECISION_TOKENS``
    # (``benchmarks/attention.py``); without a gradient the kernel is used, which rounds less
    trained = torch.is_grad_enabled() and q.requires_grad
    is_slow = q.dtype in HALF and trained and k.shape[-2] <= HALF_PRECISION_TOKENS
    return (bool(dropout) or is_slow) and q.device.type == "cpu" and not is_capturing_attention()


def attend_by_products(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
    scale: float | None,
) -> Tensor:
    """Return the attention by the steps of torch's function without a kernel."""
    # Dropout is faster than its own. See ``attend_in_blocks`` for the arguments
    scores = (q * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.transpose(-1, -2)
    if causal:
        scores = scores.masked_fill(later_keys(scores), -torch.inf)
    if mask is not None:
        scores = scores + mask
    return drop(scores.softmax(-1).to(v.dtype), dropout) @ v
