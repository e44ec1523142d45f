"""Attention to keys that are gathered for each block of queries, in training on CPUs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from zoo.nn.capture import is_capturing_attention

# Returns queries, keys and values of blocks, of those of all tokens.
Gather = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
PRECISIONS = (torch.float32, torch.float64)


def can_gather_again(q: Tensor, mask: Tensor | None, dropout: float) -> bool:
    """Return whether ``attend_gathered`` computes attention with a gradient here."""
    if not torch.is_grad_enabled() or not q.requires_grad or dropout:
        return False
    if q.device.type != "cpu" or q.dtype not in PRECISIONS or torch.is_autocast_enabled("cpu"):
        return False
    if torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return False
    return not is_capturing_attention() and (mask is None or not mask.requires_grad)


def attend_gathered(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, gather: Gather, scale: float | None
) -> Tensor:
    """Return the attention of gathered blocks, as ``attend`` does without dropout.

    Blocks that share keys have copies of them, windows three and block-sparse attention eight. They
    are made again in the backward pass in place of being kept, which takes little time.

    Args:
        q: (batch, heads, queries, head_size).
        k: (batch, heads, keys, head_size).
        v: (batch, heads, keys, head_size).
        mask: added to the scores of the blocks; gets no gradient.
        gather: returns the blocks, of four dimensions each, whose third are the tokens.
        scale: factor of the scores; by default one over the square root of the size of a head.
    """
    return _GatheredAttention.apply(q, k, v, mask, gather, scale)  # type: ignore[no-any-return, no-untyped-call]


class _GatheredAttention(torch.autograd.Function):
    """Attention by torch's kernel for CPUs, which keeps the inputs of the gathering."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        gather: Gather,
        scale: float | None,
    ) -> Tensor:
        parts = gather(q, k, v)
        attended, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *parts, attn_mask=mask, scale=scale
        )
        ctx.save_for_backward(q, k, v, mask, attended, logsumexp)
        ctx.gather = gather
        ctx.scale = scale
        return attended  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, mask, attended, logsumexp = ctx.saved_tensors
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        with torch.enable_grad():
            parts = ctx.gather(*inputs)
        part_gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            gradients[0],
            *(part.detach() for part in parts),
            attended,
            logsumexp,
            0.0,
            False,
            attn_mask=mask,
            scale=ctx.scale,
        )
        return *torch.autograd.grad(parts, inputs, part_gradients), None, None, None
