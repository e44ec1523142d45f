"""Masks that are added to attention scores."""

import torch
from torch import Tensor


def mask_value(dtype: torch.dtype) -> float:
    """Return the number that excludes a key where it is added to an attention score.

    It is half of the lowest finite number, so that adding a score cannot overflow.
    """
    return torch.finfo(dtype).min / 2


def padding_mask(attention_mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return a mask that excludes padding from attention.

    The weight of a masked key is exactly zero, so the outputs of tokens do not depend on the
    amount of padding. A row that is all padding attends to its padding: its outputs are
    meaningless but finite, on every backend. A boolean mask would give a row of minus infinity
    there, hence NaN, and two more passes over the scores in ONNX to replace them.

    Args:
        attention_mask: (batch, tokens): 1 for tokens, 0 for padding; ``None`` for all 1.
        dtype: dtype of the attention scores.

    Returns:
        (batch, 1, 1, tokens), added to the attention scores: 0 for tokens and ``mask_value`` for
        padding; ``None`` for no mask.
    """
    if attention_mask is None:
        return None
    return ((attention_mask == 0).to(dtype) * mask_value(dtype))[:, None, None, :]


def packed_mask(
    query_document_ids: Tensor,
    key_document_ids: Tensor,
    dtype: torch.dtype,
    *,
    causal: bool = False,
) -> Tensor:
    """Return a mask that restricts attention to tokens of the same document.

    Args:
        query_document_ids: (batch, queries), int64: the document of each query token, counted
            from 1 in each row; 0 for padding.
        key_document_ids: (batch, keys), int64: the document of each key token.
        dtype: dtype of the attention scores.
        causal: also mask the keys that follow a query. Queries and keys are then the same tokens.

    Returns:
        (batch, 1, queries, keys), added to the attention scores.
    """
    masked = query_document_ids[:, None, :, None] != key_document_ids[:, None, None, :]
    if causal:
        masked = masked | torch.ones_like(masked[0]).triu(1)
    return masked.to(dtype) * mask_value(dtype)


def causal_mask(
    attention_mask: Tensor | None,
    *,
    queries: int,
    past: int,
    like: Tensor,
    explicit: bool = False,
) -> Tensor | None:
    """Return a mask that excludes padding and the keys that follow a query.

    Args:
        attention_mask: (batch, past + queries): 1 for tokens, 0 for padding; ``None`` for all 1.
        queries: number of query tokens.
        past: number of earlier tokens, whose keys are cached.
        like: a tensor with the dtype and device of the attention scores.
        explicit: also return a mask for several queries without padding and past.

    Returns:
        (batch or 1, 1, queries or 1, past + queries), added to the attention scores; ``None``
        where no mask is needed: without padding, a single query attends to all keys, and without
        a past, the attention kernel computes causal attention itself.
    """
    if queries == 1:
        return padding_mask(attention_mask, like.dtype)
    if attention_mask is None and past == 0 and not explicit:
        return None
    keys = torch.arange(past + queries, device=like.device)
    masked = (keys > keys[past:, None])[None, None]  # (1, 1, queries, keys): later keys
    if attention_mask is not None:
        masked = masked | (attention_mask == 0)[:, None, None, :]
    return masked.to(like.dtype) * mask_value(like.dtype)
