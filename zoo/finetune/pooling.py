"""Pooling of token vectors to sentence embeddings in torch, with gradients.

The modes are those of ``zoo.inference.processing.pooling``, which pools in NumPy.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.tokenizers.pooling import Pooling


def pool(hidden: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """Return sentence embeddings, (rows, hidden).

    Args:
        hidden: (rows, tokens, hidden).
        mask: (rows, tokens), 1 for tokens and 0 for padding, which is on the right.
        pooling: mode, and whether to normalize.
    """
    if pooling.mode == "cls":
        vectors = hidden[:, 0]
    elif pooling.mode == "lasttoken":
        vectors = hidden[torch.arange(len(hidden), device=hidden.device), mask.sum(1) - 1]
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
