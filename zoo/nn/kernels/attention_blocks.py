"""Attention in training on CPUs, for a block of heads or documents at a time."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from zoo.nn.capture import is_capturing_attention
from zoo.nn.kernels.dropout import has_level, keep_factor, mark_dropped
from zoo.nn.packed_attention import DocumentOffsets

SCORES_AT_ONCE = 1 << 18  # of a block: a MiB in float32
HALF = (torch.bfloat16, torch.float16)


class ScoreBlock(NamedTuple):
    """Heads and tokens whose scores are computed at once."""

    rows: slice | int  # rows of the batch, or one of them
    heads: slice  # heads of these rows
    queries: slice = slice(None)  # tokens of these rows
    keys: slice = slice(None)


def row_blocks(q: Tensor, k: Tensor) -> list[ScoreBlock]:
    """Return the blocks of whole rows: of many short ones, or of some heads of a long one."""
    # q, k: (batch, heads, queries or keys, head_size)
    batch, heads, queries, _ = q.shape
    of_head = max(1, queries * k.shape[2])
    rows = max(1, SCORES_AT_ONCE // (of_head * heads))
    return [
        ScoreBlock(slice(start, start + rows), part)
        for start in range(0, batch, rows)
        for part in parts_of_heads(heads, of_head)
    ]


def document_blocks(q: Tensor, k: Tensor, documents: DocumentOffsets) -> list[ScoreBlock]:
    """Return the blocks of documents that do not cross rows."""
    # q, k: (batch, heads, queries or keys, head_size)
    heads = q.shape[1]
    return [
        ScoreBlock(row, part, queries, keys)
        for (row, queries), (_, keys) in zip(
            _stretches(documents.offsets, q.shape[2]),
            _stretches(documents.offsets_of_keys, k.shape[2]),
            strict=True,
        )
        for part in parts_of_heads(heads, (queries.stop - queries.start) * (keys.stop - keys.start))
    ]


def _stretches(offsets: Tensor, tokens: int) -> Iterator[tuple[int, slice]]:
    """Return the row of each document, and its tokens in rows of a length."""
    for start, end in pairwise(offsets.tolist()):
        row, first = divmod(start, tokens)
        yield row, slice(first, first + end - start)


def parts_of_heads(heads: int, scores: int) -> Iterator[slice]:
    """Yield the heads whose scores are computed at once, of which each has a number of scores."""
    step = max(1, SCORES_AT_ONCE // max(1, scores))
    return (slice(first, first + step) for first in range(0, heads, step))


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
                    scores += mask[block.rows, block.heads]
                weights = scores.softmax(-1)
                if dropout:
                    mark_dropped(weights, dropout)
                saved.append(weights.to(v.dtype))
                weights = weights.clamp_min(0) if dropout else weights
                output[block.rows, block.heads, block.queries] = _product(
                    weights, values, keep_factor(dropout)
                )
        ctx.save_for_backward(q, k, v, *saved)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, *saved = ctx.saved_tensors
        of_q, of_k, of_v = (_by_token(x, x.shape[-1]) for x in (q, k, v))
        factor = keep_factor(ctx.dropout)
        for block, weights in zip(ctx.blocks, saved, strict=True):
            at = block.rows, block.heads, block.keys
            queries, keys, values = _parts(q, k, v, block)
            gradient = _part(gradients[0], block, block.queries)
            weights = weights.to(values.dtype)
            of_weights = _product(gradient, values.transpose(-1, -2), factor)
            left = weights.clamp_min(0) if ctx.dropout else weights
            of_v[at] = _product(left.transpose(-1, -2), gradient, factor)
            if ctx.dropout:
                of_weights = torch.ops.aten.threshold_backward(of_weights, weights, 0)
                weights = weights.abs()
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            of_q[block.rows, block.heads, block.queries] = _product(of_scores, keys, ctx.scale)
            of_k[at] = _product(of_scores.transpose(-1, -2), queries, ctx.scale)
        return of_q, of_k, of_v, None, None, None, None, None


def _by_token(x: Tensor, size: int) -> Tensor:
    """Return an empty tensor, (batch, heads, tokens, size), with a token's heads side by side."""
    batch, heads, tokens, _ = x.shape
    return x.new_empty(batch, tokens, heads, size).transpose(1, 2)


def _parts(q: Tensor, k: Tensor, v: Tensor, block: ScoreBlock) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of a block, at least in float32."""
    return _part(q, block, block.queries), _part(k, block, block.keys), _part(v, block, block.keys)


def _part(x: Tensor, block: ScoreBlock, tokens: slice) -> Tensor:
    part = x[block.rows, block.heads, tokens]
    return part.float() if x.dtype in HALF else part


def _product(x: Tensor, y: Tensor, factor: float) -> Tensor:
    """Return x y times a factor, (rows, heads, m, n), or of one row, (heads, m, n)."""
    # One row at a time, whose heads are not copied, unlike with several rows in one product.
    result = x.new_empty(*x.shape[:-1], y.shape[-1])
    rows = zip(result, x, y, strict=True) if x.dim() == 4 else [(result, x, y)]
    for part, left, right in rows:
        part.baddbmm_(left, right, beta=0, alpha=factor)
    return result
