"""Initialization of weights."""

import math

from torch import nn


def init_weights(model: nn.Module, std: float, *, truncated: bool = True) -> None:
    """Initialize linear maps and embeddings in place.

    Weights are drawn from a normal distribution; biases are zero. Norms keep torch's initial ones
    and zeros.

    Args:
        model: the model.
        std: standard deviation before truncation.
        truncated: truncate the distribution at two standard deviations, as TensorFlow's
            ``truncated_normal_initializer``; the standard deviation is then 0.88 times ``std``.
    """
    bound = 2 * std if truncated else math.inf
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(module.weight, std=std, a=-bound, b=bound)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
