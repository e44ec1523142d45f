"""Activation functions by the names that configurations of transformers use.

Two of its names are not here, ``prelu`` and ``xielu``, which have parameters.
"""

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Function = Callable[[Tensor], Tensor]

# the approximation of Hendrycks and Gimpel (arXiv:1606.08415)
_tanh_gelu = functools.partial(F.gelu, approximate="tanh")


def _clipped_gelu(x: Tensor) -> Tensor:
    return F.gelu(x).clamp(-10, 10)


def _quick_gelu(x: Tensor) -> Tensor:
    """Return the sigmoid approximation of Hendrycks and Gimpel (arXiv:1606.08415)."""
    return x * torch.sigmoid(1.702 * x)


def _laplace(x: Tensor) -> Tensor:
    """Return the activation of Ma et al. 2022 (arXiv:2209.10655, equation 16)."""
    return 0.5 * (1.0 + torch.erf((x - 0.707107) / (0.282095 * math.sqrt(2.0))))


def _squared_relu(x: Tensor) -> Tensor:
    """Return the activation of So et al. 2021 (arXiv:2109.08668)."""
    return F.relu(x).square()


def _sqrt_softplus(x: Tensor) -> Tensor:
    return F.softplus(x).sqrt()


def _identity(x: Tensor) -> Tensor:
    return x


ACTIVATIONS: dict[str, Function] = {
    "gelu": F.gelu,  # exact, with the error function
    "gelu_10": _clipped_gelu,
    "gelu_accurate": _tanh_gelu,
    "gelu_fast": _tanh_gelu,
    "gelu_new": _tanh_gelu,
    "gelu_python": F.gelu,
    "gelu_python_tanh": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "hardswish": F.hardswish,
    "laplace": _laplace,
    "leaky_relu": F.leaky_relu,
    "linear": _identity,
    "mish": F.mish,
    "quick_gelu": _quick_gelu,
    "relu": F.relu,
    "relu2": _squared_relu,
    "relu6": F.relu6,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "sqrtsoftplus": _sqrt_softplus,
    "swish": F.silu,
    "tanh": torch.tanh,
}
_IN_PLACE: dict[Function, Function] = {
    F.gelu: torch.ops.aten.gelu_,
    _tanh_gelu: functools.partial(torch.ops.aten.gelu_, approximate="tanh"),
    F.relu: torch.relu_,
    F.silu: functools.partial(F.silu, inplace=True),
    torch.tanh: torch.tanh_,
}


def activation(name: str) -> Function:
    """Return an activation function by the name that configurations use.

    Raises:
        ValueError: no function has that name.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation {name!r} is not one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def activate(function: Function, x: Tensor) -> Tensor:
    """Apply an activation function to a tensor that is not used afterwards."""
    # Without gradients, the result overwrites ``x``: allocating memory for the wide activations of
    # a feed-forward network takes several times as long as computing them.
    if torch.is_grad_enabled() or torch.compiler.is_exporting():
        return function(x)
    return _IN_PLACE.get(function, function)(x)
