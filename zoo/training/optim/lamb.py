"""LAMB: AdamW with the update of each tensor scaled to the norm of the tensor.

You et al. 2020, "Large Batch Optimization for Deep Learning: Training [...] in 76 minutes",
arXiv:1904.00962, Algorithm 2, with phi(z) = z; torch has no LAMB. As in the code released with Lan
et al. 2020 (arXiv:1909.11942, lamb_optimizer.py), parameters without weight decay are updated as by
AdamW, and the trust ratio is 1 where the weights or the update are all zero.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class Lamb(torch.optim.Optimizer):
    """LAMB with an optional bias correction.

    A group with ``decayed=False`` is updated without a trust ratio. The state of a parameter is
    that of ``torch.optim.AdamW``: ``step``, ``exp_avg``, ``exp_avg_sq``.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        bias_correction: bool = True,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
            "decayed": True,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update each parameter that has a gradient."""
        assert closure is None, "the loss is computed before"
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._update(group, parameters)

    def _update(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        updates = self._adam(group, parameters)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["decayed"]:
            torch._foreach_mul_(updates, _ratios(parameters, updates))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _adam(self, group: dict[str, Any], parameters: list[Tensor]) -> list[Tensor]:
        # Adam's updates for a learning rate of 1; the running means are updated in place
        (beta1, beta2), states = group["betas"], [self._state(p) for p in parameters]
        steps, means, squares = (
            [state[key] for state in states] for key in ("step", "exp_avg", "exp_avg_sq")
        )
        gradients = [p.grad for p in parameters if p.grad is not None]
        torch._foreach_add_(steps, 1)
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        below = list(torch._foreach_sqrt(squares))
        if group["bias_correction"]:
            torch._foreach_div_(below, [(1 - beta2 ** step.item()) ** 0.5 for step in steps])
        torch._foreach_add_(below, group["eps"])
        updates = list(torch._foreach_div(means, below))
        if group["bias_correction"]:
            torch._foreach_div_(updates, [1 - beta1 ** step.item() for step in steps])
        return updates

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)  # on the CPU: read without synchronization
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


def _ratios(parameters: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """Return the trust ratios norm(parameter) / norm(update), and 1 where either is zero."""
    norms = zip(torch._foreach_norm(parameters), torch._foreach_norm(updates), strict=True)
    return [
        torch.where((weight > 0) & (update > 0), weight / update, 1.0) for weight, update in norms
    ]
