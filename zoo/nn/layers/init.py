"""Initialization of weights."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary

InitFunction = Callable[..., Tensor]


def init_function(function: InitFunction) -> InitFunction:
    """Let function modes see a call as a whole, like the functions of ``torch.nn.init``."""

    # ``zoo.nn.layers.skip_init`` then skips it, which it cannot do with a function that draws until
    # it accepts all numbers, or that sets a part of a tensor
    @functools.wraps(function)
    def initialize(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if has_torch_function_unary(tensor):
            return handle_torch_function(initialize, (tensor,), tensor, *args, **kwargs)
        return function(tensor, *args, **kwargs)

    return initialize


@init_function
def truncated_normal_(tensor: Tensor, std: float, bound: float) -> Tensor:
    """Draw values from a normal distribution that is truncated at both sides."""
    return nn.init.trunc_normal_(tensor, std=std, a=-bound, b=bound)


@init_function
@torch.no_grad()
def scale_rows_(tensor: Tensor, rows: int, factor: float) -> Tensor:
    """Multiply the first rows of a tensor."""
    tensor[:rows] *= factor
    return tensor


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
            truncated_normal_(module.weight, std, bound)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
