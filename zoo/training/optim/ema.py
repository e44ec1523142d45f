"""Exponential moving average of the weights (EMA)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class EMA:
    """Exponential moving average of a model's parameters, in float32 or a wider dtype."""

    # The update is as in ``torch.optim.swa_utils``. Its ``AveragedModel`` is not used: it
    # deep-copies the whole model, and keeps the average in the dtype of the weights, where an
    # update of a bfloat16 average by 1 - 0.999 rounds to nothing. Here the average is at least
    # float32, and only of parameters.

    def __init__(self, model: nn.Module, decay: float, *, trained_only: bool = False) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"the decay of an average is {decay}: not at least 0, less than 1")
        self._average = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        self.trained_only = trained_only
        self.tensors = {}
        for name, parameter in self._parameters(model).items():
            self.tensors[name] = _in_float32(parameter).clone()

    def _parameters(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Return the parameters that are averaged, by name."""
        return {
            name: parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad or not self.trained_only
        }

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Update the average with the weights; call it after each optimizer step."""
        weights = [_in_float32(parameter) for parameter in self._parameters(model).values()]
        self._average(list(self.tensors.values()), weights, 0)

    @torch.no_grad()
    def copy_to(self, model: nn.Module) -> None:
        """Copy the average into a model's parameters."""
        for name, parameter in self._parameters(model).items():
            parameter.copy_(self.tensors[name])

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Use the average as a model's weights inside the context, and restore them after it."""
        parameters = list(self._parameters(model).values())
        weights = [parameter.detach().clone() for parameter in parameters]
        self.copy_to(model)
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, weight in zip(parameters, weights, strict=True):
                    parameter.copy_(weight)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the average by parameter name, without a copy."""
        return dict(self.tensors)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load an average from ``state_dict``."""
        shapes = {name: tensor.shape for name, tensor in self.tensors.items()}
        if {name: tensor.shape for name, tensor in state.items()} != shapes:
            raise ValueError("the average was saved of a model with other parameters")
        for name, tensor in self.tensors.items():
            tensor.copy_(state[name])


def _in_float32(parameter: Tensor) -> Tensor:
    """Return the weights in float32, or in their own dtype if that is wider."""
    return parameter.detach().to(torch.promote_types(parameter.dtype, torch.float32))
