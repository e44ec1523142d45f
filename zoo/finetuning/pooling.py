"""Pooling of token vectors into sentence embeddings in torch, with gradients.

``zoo.inference.processing.pooling`` has the same modes in NumPy.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.tokenizers.pooling import Pooling


def pool(hidden: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """Return sentence embeddings, (rows, hidden), before any truncation of dimensions.

    Args:
        hidden: (rows, tokens, hidden).
        mask: (rows, tokens), 1 for the tokens to pool, which are adjacent, and 0 for others.
    """
    rows, first = torch.arange(len(hidden), device=hidden.device), mask.int().argmax(1)
    if pooling.mode == "cls":
        vectors = hidden[rows, first]
    elif pooling.mode == "lasttoken":
        vectors = hidden[rows, first + mask.sum(1) - 1]
    elif pooling.mode == "max":
        vectors = hidden.masked_fill(mask[:, :, None] == 0, -torch.inf).amax(1)
    else:
        weights = mask.to(hidden.dtype)
        if pooling.mode == "weightedmean":
            weights = weights * torch.arange(1, mask.shape[1] + 1, device=mask.device)
        total = weights.sum(1, keepdim=True)
        weights = weights / (total.sqrt() if pooling.mode == "mean_sqrt_len_tokens" else total)
        vectors = (weights[:, :, None] * hidden).sum(1)
    return F.normalize(vectors, dim=-1) if pooling.normalize else vectors
