"""Scores and logits that a hyperbolic tangent bounds, and attention with such scores.

Gemma Team 2024, arXiv:2408.00118, section 2; Bello et al. 2016, arXiv:1611.09940, section 5.1.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function_unary


def softcap(x: Tensor, cap: float | Tensor) -> Tensor:
    """Return ``cap * tanh(x / cap)``, which is between ``-cap`` and ``cap``."""
    return torch.tanh(x / cap) * cap


def softcapped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    cap: float,
) -> Tensor:
    """Return attention whose scores are bounded before the mask is added.

    The other arguments are those of ``torch.nn.functional.scaled_dot_product_attention``, which
    has no such bound.
    """
    # Function modes see a call as a whole, so that ``zoo.nn.capture`` records it.
    if has_torch_function_unary(query):
        return handle_torch_function(
            softcapped_attention,
            (query,),
            query,
            key,
            value,
            attn_mask,
            dropout_p,
            is_causal,
            scale,
            cap=cap,
        )
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = softcap((query * factor) @ key.transpose(-1, -2), cap)
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    if attn_mask is not None:
        scores = scores + attn_mask
    probabilities = scores.softmax(-1).to(value.dtype)
    return F.dropout(probabilities, dropout_p) @ value
