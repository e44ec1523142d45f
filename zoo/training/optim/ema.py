"""A moving average of the weights, which often does better than the weights themselves."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class EMA:
    """The exponential moving average of a model's parameters, in float32 or what is wider.

    Args:
        model: the average starts as its parameters.
        decay: what stays of the average in each update.

    Attributes:
        tensors: parameter's name -> average; a tied one is there once.

    Raises:
        ValueError: the decay is not at least 0 and less than 1.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"the decay of an average is {decay}: not at least 0, less than 1")
        self.decay = decay
        self.tensors = {name: _wide(p).clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the weights, after each update of them."""
        current = [_wide(parameter) for parameter in model.parameters()]
        torch._foreach_lerp_(list(self.tensors.values()), current, 1 - self.decay)

    @torch.no_grad()
    def copy_to(self, model: nn.Module) -> None:
        """Give a model the average as its weights."""
        for name, parameter in model.named_parameters():
            parameter.copy_(self.tensors[name])

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Give a model the average as its weights for a while; then it has its own back."""
        own = [parameter.detach().clone() for parameter in model.parameters()]
        self.copy_to(model)
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, kept in zip(model.parameters(), own, strict=True):
                    parameter.copy_(kept)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the average, by the parameters' names; it is not copied."""
        return dict(self.tensors)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put back what ``state_dict`` returned.

        Raises:
            ValueError: names or shapes are others.
        """
        shapes = {name: tensor.shape for name, tensor in self.tensors.items()}
        if {name: tensor.shape for name, tensor in state.items()} != shapes:
            raise ValueError("the average was saved of a model with other parameters")
        for name, tensor in self.tensors.items():
            tensor.copy_(state[name])


def _wide(parameter: Tensor) -> Tensor:
    return parameter.detach().to(torch.promote_types(parameter.dtype, torch.float32))
