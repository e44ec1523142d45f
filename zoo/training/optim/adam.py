"""Optimizers with Adam's running means: what they share, LAMB and StableAdamW."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from zoo.overrides import override


class Adam(torch.optim.Optimizer):
    """Base class of optimizers with running means of the gradient and of its square."""

    # A parameter has the state of ``torch.optim.AdamW``: ``step``, ``exp_avg``,
    # ``exp_avg_sq``.

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
                self.update(group, parameters)

    @abstractmethod
    def update(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        """Update the parameters of a group, all of which have a gradient."""

    def means(
        self, group: dict[str, Any], parameters: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Update the running means; return Adam's updates for a rate of 1, and the roots below."""
        beta1, beta2 = group["betas"]
        states = [self.state[parameter] for parameter in parameters]
        for parameter, state in zip(parameters, states, strict=True):
            if not state:
                # On the CPU, it is read without synchronization.
                state["step"] = torch.tensor(0.0)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        steps = [state["step"] for state in states]
        means = [state["exp_avg"] for state in states]
        squares = [state["exp_avg_sq"] for state in states]
        gradients = [p.grad for p in parameters if p.grad is not None]
        torch._foreach_add_(steps, 1)
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        roots = list(torch._foreach_sqrt(squares))
        if group["bias_correction"]:
            torch._foreach_div_(roots, [(1 - beta2 ** step.item()) ** 0.5 for step in steps])
        updates = list(torch._foreach_div(means, torch._foreach_add(roots, group["eps"])))
        if group["bias_correction"]:
            torch._foreach_div_(updates, [1 - beta1 ** step.item() for step in steps])
        return updates, roots


class Lamb(Adam):
    """LAMB with an optional bias correction.

    A group with ``decayed=False`` is updated without a trust ratio.
    """

    # You et al. 2020, "Large Batch Optimization for Deep Learning: Training [...] in 76 minutes",
    # arXiv:1904.00962, Algorithm 2, with phi(z) = z; torch has no LAMB. As in the code released
    # with Lan et al. 2020 (arXiv:1909.11942, lamb_optimizer.py), parameters without weight decay
    # are updated as by AdamW, and the trust ratio is 1 where the weights or the update are all
    # zero.

    @override
    def update(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        updates, _ = self.means(group, parameters)
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["decayed"]:
            weight_norms = torch._foreach_norm(parameters)
            update_norms = torch._foreach_norm(updates)
            trust_ratios = []
            for weight_norm, update_norm in zip(weight_norms, update_norms, strict=True):
                are_positive = (weight_norm > 0) & (update_norm > 0)
                trust_ratios.append(torch.where(are_positive, weight_norm / update_norm, 1.0))
            torch._foreach_mul_(updates, trust_ratios)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])


class StableAdamW(Adam):
    """StableAdamW.

    The rate of a tensor, also of its weight decay, is divided by the root mean square of gradient /
    max(root of the mean square, eps) if that is above 1.
    """

    # Wortsman et al. 2023, "Stable and low-precision training for large-scale vision-language
    # models", arXiv:2304.13013, Algorithm 2; torch has no StableAdamW. A gradient that is larger
    # than the root mean square of those before it would give too large an update, as at the spikes
    # of a loss. Like Adafactor, it clips the update, so that gradients are not clipped.

    @override
    def update(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        updates, roots = self.means(group, parameters)
        torch._foreach_clamp_min_(roots, group["eps"])
        gradients = [p.grad for p in parameters if p.grad is not None]
        norms = torch._foreach_norm(torch._foreach_div(gradients, roots))
        if group["weight_decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        clips = [
            (norm / math.sqrt(parameter.numel())).clamp(min=1.0)
            for norm, parameter in zip(norms, parameters, strict=True)
        ]
        torch._foreach_div_(updates, clips)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])
