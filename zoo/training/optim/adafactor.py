"""Adafactor: Adam's second moment of a matrix, factored into its row means and column means."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

DECAY = -0.8  # Shazeer and Stern 2018, section 7.2
MAX_UPDATE_RMS = 1.0  # section 6, d
EPSILON_1 = 1e-30  # Algorithm 4
EPSILON_2 = 1e-3  # Algorithm 4


class Adafactor(torch.optim.Optimizer):
    """Adafactor without momentum, with an external learning rate."""

    # Shazeer and Stern 2018, arXiv:1804.04235: Algorithms 4 and 5 without momentum, and, as Raffel
    # et al. 2020 (arXiv:1910.10683) use it, with a learning rate from outside that is scaled by the
    # root mean square of each parameter. The decay of the second moment is 1 - t ** -0.8, updates
    # are clipped at d = 1, and epsilon 1 and 2 are 1e-30 and 1e-3. As in Mesh TensorFlow
    # (``AdafactorOptimizer._factored_dims``), small parameters are not factored.
    #
    # ``torch.optim.Adafactor`` is not used because it computes something else: it limits the
    # learning rate to 1 / sqrt(t); it clamps the mean square from below instead of adding epsilon
    # 1, by default at 1e-7, which is more than the mean square usually is in a language model; it
    # returns NaN for a row without a gradient if that limit is the paper's 1e-30; and it
    # synchronizes with the device twice per parameter.

    # The state of a parameter is ``step``, and, if it is factored, ``row``, (..., rows, 1), and
    # ``column``, (..., 1, columns); else ``square`` of the parameter's shape.
    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        weight_decay: float = 0.0,
        min_dim_size_to_factor: int = 128,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.min_dim_size_to_factor = min_dim_size_to_factor

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update each parameter that has a gradient."""
        assert closure is None, "the loss is computed before"
        for group in self.param_groups:
            lr = group["lr"]
            decay = group["weight_decay"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                update = parameter.grad * self._factor(parameter, parameter.grad)
                update /= (_rms(update) / MAX_UPDATE_RMS).clamp(min=1.0)
                update *= lr * _rms(parameter).clamp(min=EPSILON_2)
                if decay:
                    parameter.mul_(1 - lr * decay)
                parameter.sub_(update)

    def _factor(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        """Update the running means by a gradient, and return 1 / sqrt(mean square)."""
        state = self.state[parameter]
        squared = gradient.square() + EPSILON_1
        state["step"] = state.get("step", torch.tensor(0.0)) + 1
        weight = state["step"].item() ** DECAY
        if parameter.dim() < 2 or min(parameter.shape[-2:]) < self.min_dim_size_to_factor:
            return _update_mean(state, "square", squared, weight).rsqrt()
        row = _update_mean(state, "row", squared.mean(-1, keepdim=True), weight)
        column = _update_mean(state, "column", squared.mean(-2, keepdim=True), weight)
        factor: Tensor = (row / row.mean(-2, keepdim=True)).rsqrt() * column.rsqrt()
        return factor


def _update_mean(state: dict[str, Tensor], key: str, value: Tensor, weight: float) -> Tensor:
    """Update a running mean by a value of a weight, and return it."""
    if key in state:
        state[key] = state[key].lerp(value, weight)
    else:
        state[key] = value  # The weight of the first value is 1.
    return state[key]


def _rms(tensor: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(tensor)
    return norm / math.sqrt(tensor.numel())
