"""Initialization of weights."""

from torch import nn


def init_weights(model: nn.Module, std: float) -> None:
    """Initialize linear maps and embeddings in place.

    Weights are drawn from a normal distribution truncated at two standard deviations; biases are
    zero. Norms keep torch's initial ones and zeros.

    Args:
        model: the model.
        std: standard deviation before truncation.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
