"""Multi-head self-attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2)."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from zoo.nn.kv_cache import LayerCache


def padding_mask(attention_mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Turn a mask over tokens into what is added to attention scores.

    A masked key gets a weight of exactly zero, so the outputs of real tokens do not depend on
    how far their row is padded. A row without any real token attends to all of its padding: its
    outputs mean nothing, but they are numbers, on every backend. (A boolean mask would mean a
    row of minus infinities there, and two more passes over the scores in ONNX to mend it.)

    Args:
        attention_mask: (batch, tokens), non-zero for real tokens; ``None`` where every token is
            real, which costs nothing in attention.
        dtype: of the scores.

    Returns:
        (batch, 1, 1, tokens), zero for real tokens and hugely negative for padding, or ``None``.
    """
    if attention_mask is None:
        return None
    lowest = torch.finfo(dtype).min / 2  # half, so that adding a score cannot overflow
    return ((attention_mask == 0).to(dtype) * lowest)[:, None, None, :]


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
        causal: mask the keys that follow a query, too. Queries and keys are then the same tokens.

    Returns:
        (batch, 1, queries, keys), added to the attention scores.
    """
    masked = query_document_ids[:, None, :, None] != key_document_ids[:, None, None, :]
    if causal:
        masked = masked | torch.ones_like(masked[0]).triu(1)
    return masked.to(dtype) * (torch.finfo(dtype).min / 2)


def causal_mask(
    attention_mask: Tensor | None, *, queries: int, past: int, like: Tensor
) -> Tensor | None:
    """Turn a mask over tokens into what keeps each token from looking ahead, and at padding.

    Args:
        attention_mask: (batch, past + queries), non-zero for real tokens, or ``None``.
        queries: how many tokens look.
        past: how many stand before them, in a cache.
        like: a tensor of the scores' dtype and device.

    Returns:
        (batch or 1, 1, queries or 1, past + queries), to be added to scores; ``None`` where
        causal attention needs no such tensor: a single query sees all, and without a past and
        without padding the kernel knows what to do.
    """
    if queries == 1:
        return padding_mask(attention_mask, like.dtype)
    if attention_mask is None and past == 0:
        return None
    keys = torch.arange(past + queries, device=like.device)
    hidden = (keys > keys[past:, None])[None, None]  # (1, 1, queries, keys): what is ahead
    if attention_mask is not None:
        hidden = hidden | (attention_mask == 0)[:, None, None, :]
    return hidden.to(like.dtype) * (torch.finfo(like.dtype).min / 2)


class Attention(nn.Module):
    """A part of attention, whatever asks and whatever is looked at: several heads side by side.

    Args:
        num_heads: how many heads there are.
        head_size: width of a head.
        dropout: probability of dropping an attention weight in training.
        scale: what scores are multiplied by, by default the root of the head's width, inverted.

    Attributes:
        out: the linear map of all heads' results, which a subclass gives.
    """

    out: nn.Linear

    def __init__(
        self, num_heads: int, head_size: int, dropout: float, scale: float | None = None
    ) -> None:
        super().__init__()
        self.heads, self.dropout, self.scale = (num_heads, head_size), dropout, scale

    def split(self, x: Tensor, parts: int) -> list[Tensor]:
        """Return views of (batch, tokens, inner) that lie side by side.

        Args:
            x: (batch, tokens, parts * inner).
            parts: how many.

        Returns:
            (batch, heads, tokens, head_size) each.
        """
        return [
            part.unflatten(-1, self.heads).transpose(1, 2)  # type: ignore[no-untyped-call]
            for part in x.chunk(parts, dim=-1)
        ]

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool = False
    ) -> Tensor:
        """Gather what each query looks for.

        Args:
            q: (batch, heads, queries, head_size).
            k: (batch, heads, keys, head_size).
            v: the same.
            mask: added to the scores, broadcast to (batch, heads, queries, keys), or ``None``.
            causal: whether queries and keys are the same tokens, and none looks ahead.

        Returns:
            (batch, queries, hidden).
        """
        mixed = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=causal,
            scale=self.scale,
        )
        return self.out(mixed.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]


class SelfAttention(Attention):
    """Every token looks at every other, in several heads side by side.

    Args:
        hidden_size: width of the input and the output.
        num_heads: how many heads share that width.
        dropout: probability of dropping an attention weight in training.
        causal: a token looks at itself and at those before it, and at none behind it.
        scale: what scores are multiplied by, by default the root of the head's width, inverted.
        head_size: width of a head, by default its share of ``hidden_size``.
        bias: whether the linear maps add one.
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        num_heads: int,
        dropout: float,
        causal: bool = False,
        scale: float | None = None,
        head_size: int | None = None,
        bias: bool = True,
    ) -> None:
        size = head_size or hidden_size // num_heads
        super().__init__(num_heads, size, dropout, scale)
        self.causal, inner = causal, num_heads * size
        self.qkv = nn.Linear(hidden_size, 3 * inner, bias=bias)
        self.out = nn.Linear(inner, hidden_size, bias=bias)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, cache: "LayerCache | None" = None
    ) -> Tensor:
        """Mix the tokens of each row.

        Args:
            x: (batch, tokens, hidden).
            mask: added to the scores, broadcast to (batch, heads, queries, keys); in causal
                attention it says what is ahead, too, as ``causal_mask`` does.
            cache: keys and values of earlier tokens, which those of ``x`` are added to.

        Returns:
            (batch, tokens, hidden).
        """
        q, k, v = self.split(self.qkv(x), 3)  # one product for all three
        if cache is not None:
            k, v = cache.extend(k, v)
        return self.mix(q, k, v, mask, causal=self.causal and mask is None and x.shape[1] > 1)
