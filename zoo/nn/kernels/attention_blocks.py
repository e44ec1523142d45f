"""Attention in training on CPUs, for a block of rows or heads at a time."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from zoo.nn.capture import is_capturing_attention
from zoo.nn.kernels.dropout import has_level, keep_factor, mark_dropped

SCORES_AT_ONCE = 1 << 18  # of a block: a MiB in float32
HALF = (torch.bfloat16, torch.float16)


class ScoreBlock(NamedTuple):
    """Heads whose scores are computed at once."""

    rows: slice  # rows of the batch
    heads: slice  # heads of each of these rows


def row_blocks(q: Tensor, k: Tensor) -> list[ScoreBlock]:
    """Return the blocks of whole rows: of many short ones, or of some heads of a long one."""
    # q, k: (batch, heads, queries or keys, head_size)
    batch, heads, queries, _ = q.shape
    of_head = max(1, queries * k.shape[2])
    some_rows = max(1, SCORES_AT_ONCE // (of_head * heads))
    some_heads = max(1, SCORES_AT_ONCE // of_head)
    return [
        ScoreBlock(slice(row, row + some_rows), slice(head, head + some_heads))
        for row in range(0, batch, some_rows)
        for head in range(0, heads, some_heads)
    ]


def can_use_blocks(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, dropout: float = 0.0
) -> bool:
    """Return whether ``attend_in_blocks`` takes the arguments, which have a gradient, here."""
    trained = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if not trained or q.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    if is_capturing_attention() or (dropout and not has_level(dropout)):
        return False
    return mask is None or not mask.requires_grad


def attend_in_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: list[ScoreBlock],
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Return softmax(q k^T scale + mask) v of each block, (batch, heads, queries, head_size)."""
    # q: (batch, heads, queries, head_size); k, v: (batch, heads, keys, head_size); mask: added to
    # the scores, broadcast to (batch, heads, queries, keys), gets no gradient. In the result, the
    # heads of a token are adjacent in memory.
    # The scores of a block stay in a core's cache from their product to their weights, as in flash
    # attention (Dao et al. 2022, arXiv:2205.14135), whose kernels in torch have no dropout on CPUs.
    # Unlike it, the weights are kept for the backward pass; a dropped weight is kept as a negative
    # number, so that dropout needs no mask.
    #
    # Half precision is computed in float32, but for the weights that are kept.
    if mask is not None:
        mask = mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return _BlockAttention.apply(q, k, v, mask, blocks, causal, dropout, scale)  # type: ignore[no-any-return, no-untyped-call]


def later_keys(scores: Tensor) -> Tensor:
    """Return True for the keys that follow a query, (queries, keys): the last are the same."""
    queries, keys = scores.shape[-2:]
    everywhere = torch.ones(queries, keys, dtype=torch.bool, device=scores.device)
    return everywhere.triu(1 + keys - queries)


def marked_weights(scores: Tensor, dropout: float) -> Tensor:
    """Return the softmax of scores, in which dropped weights are negative."""
    weights = scores.softmax(-1)
    return mark_dropped(weights, dropout) if dropout else weights


def kept(weights: Tensor, dropout: float) -> Tensor:
    """Return marked weights with zeros in place of those that are dropped."""
    return weights.clamp_min(0) if dropout else weights


def gradient_of_scores(of_weights: Tensor, weights: Tensor, dropout: float) -> Tensor:
    """Return the gradient of the scores from that of the kept weights and the marked weights."""
    if dropout:
        of_weights = torch.ops.aten.threshold_backward(of_weights, weights, 0)
        weights = weights.abs()
    return torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)


class _BlockAttention(torch.autograd.Function):
    """Attention that keeps the weights of each block, negative where they are dropped."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        blocks: list[ScoreBlock],
        causal: bool,
        dropout: float,
        scale: float,
    ) -> Tensor:
        ctx.blocks = blocks
        ctx.scale = scale
        ctx.dropout = dropout
        output = _by_token(q, v.shape[-1])
        saved = []
        with torch.autocast("cpu", enabled=False):
            for block in blocks:
                queries, keys, values = _parts(q, k, v, block)
                scores = _product(queries, keys.transpose(-1, -2), scale)
                if causal:
                    scores.masked_fill_(later_keys(scores), -torch.inf)
                if mask is not None:
                    scores += mask[block]
                weights = marked_weights(scores, dropout)
                saved.append(weights.to(v.dtype))
                output[block] = _product(kept(weights, dropout), values, keep_factor(dropout))
        ctx.save_for_backward(q, k, v, *saved)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, *saved = ctx.saved_tensors
        of_q, of_k, of_v = (_by_token(x, x.shape[-1]) for x in (q, k, v))
        factor = keep_factor(ctx.dropout)
        for block, weights in zip(ctx.blocks, saved, strict=True):
            queries, keys, values = _parts(q, k, v, block)
            gradient = _part(gradients[0], block)
            weights = weights.to(values.dtype)
            of_weights = _product(gradient, values.transpose(-1, -2), factor)
            kept_weights = kept(weights, ctx.dropout)
            of_v[block] = _product(kept_weights.transpose(-1, -2), gradient, factor)
            of_scores = gradient_of_scores(of_weights, weights, ctx.dropout)
            of_q[block] = _product(of_scores, keys, ctx.scale)
            of_k[block] = _product(of_scores.transpose(-1, -2), queries, ctx.scale)
        return of_q, of_k, of_v, None, None, None, None, None


def _by_token(x: Tensor, size: int) -> Tensor:
    """Return an empty tensor, (batch, heads, tokens, size), with a token's heads side by side."""
    batch, heads, tokens, _ = x.shape
    return x.new_empty(batch, tokens, heads, size).transpose(1, 2)


def _parts(q: Tensor, k: Tensor, v: Tensor, block: ScoreBlock) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of a block, at least in float32."""
    return _part(q, block), _part(k, block), _part(v, block)


def _part(x: Tensor, block: ScoreBlock) -> Tensor:
    part = x[block]
    return part.float() if x.dtype in HALF else part


def _product(x: Tensor, y: Tensor, factor: float) -> Tensor:
    """Return x y times a factor, (rows, heads, m, n)."""
    # One row at a time, whose heads are not copied, unlike with several rows in one product.
    result = x.new_empty(*x.shape[:-1], y.shape[-1])
    for part, left, right in zip(result, x, y, strict=True):
        part.baddbmm_(left, right, beta=0, alpha=factor)
    return result
