"""Attention of some tokens to the documents that they are in, in training on CPUs."""

# The last block of an encoder is only read at some tokens, such as the first one of each text, or
# those that are masked. The others need no queries there.

import torch
from torch import Tensor

from zoo.nn.kernels.attention_blocks import can_use_blocks
from zoo.nn.kernels.document_groups import attend_in_groups, group_documents
from zoo.nn.packed_attention import DocumentOffsets


def can_select_queries(
    x: Tensor, weight: Tensor, documents: DocumentOffsets, *, dropout: float
) -> bool:
    """Return whether ``attend_from_positions`` takes a projection of ``x`` by a weight here."""
    if documents.causal or documents.reach is not None or documents.more_keys:
        return False
    return can_use_blocks(x, x, weight, dropout=dropout)


def attend_from_positions(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    documents: DocumentOffsets,
    *,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Return softmax(q k^T scale) v within documents for some queries of the flattened rows.

    Args:
        q: queries of some tokens, (1, heads, n, head_size).
        k: keys of all tokens, (1, heads, tokens, head_size).
        v: their values, (1, heads, tokens, head_size).
        positions: the token of each query, (n,), int64, in any order.
        documents: the documents that attention is restricted to.
        dropout: dropout probability of the attention weights.
        scale: factor of the scores; ``None`` for ``head_size ** -0.5``.

    Returns:
        (1, heads, n, head_size).
    """
    in_order, order = positions.sort()
    starts = torch.searchsorted(in_order, documents.offsets.to(in_order.dtype))
    groups = group_documents(starts, documents.offsets, q.shape[1])
    mixed = attend_in_groups(q.index_select(2, order), k, v, groups, dropout=dropout, scale=scale)
    return mixed.index_select(2, order.argsort())
