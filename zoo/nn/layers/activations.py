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
_IN_PLACE: dict[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] = {
    F.gelu: torch.ops.aten.gelu_,
    _tanh_gelu: functools.partial(torch.ops.aten.gelu_, approximate="tanh"),
    F.relu: torch.relu_,
    F.silu: functools.partial(F.silu, inplace=True),
    torch.tanh: torch.tanh_,
}


def activation(name: str) -> Callable[[Tensor], Tensor]:
    """Return an activation function by name.

    Raises:
        ValueError: no function has that name.
    """
    if name not in _BY_NAME:
        raise ValueError(f"activation {name!r} is not one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def activate(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply an activation to a tensor that nobody else needs.

    Where no gradient does either, the result takes its place: fresh memory for the wide vectors
    of a feed-forward network takes several times as long to come by as they take to compute.
    """
    if torch.is_grad_enabled() or torch.compiler.is_exporting():
        return function(x)
    return _IN_PLACE.get(function, function)(x)
