"""How fresh weights are drawn."""

from torch import nn


def init_weights(model: nn.Module, std: float) -> None:
    """Draw matrices from a normal distribution cut off at two deviations; biases start at zero.

    Norms keep the ones and zeros that torch gives them.

    Args:
        model: the model whose parameters are set in place.
        std: deviation of the distribution before it is cut.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
