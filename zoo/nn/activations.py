"""Activation functions by the names that configurations use."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

_tanh_gelu = functools.partial(F.gelu, approximate="tanh")

_BY_NAME: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,  # exact, with the error function
    "gelu_new": _tanh_gelu,  # the approximation of Hendrycks and Gimpel (arXiv:1606.08415)
    "gelu_pytorch_tanh": _tanh_gelu,  # the same one under another name
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """Return an activation function by name.

    Raises:
        ValueError: no function has that name.
    """
    if name not in _BY_NAME:
        raise ValueError(f"activation {name!r} is not one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
