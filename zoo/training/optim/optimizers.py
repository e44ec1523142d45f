"""Construction of optimizers, their hyperparameters per step, and gradient clipping."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from zoo.families.recipe import OptimizerConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


def make_optimizer(
    groups: Sequence[dict[str, Any]], config: OptimizerConfig
) -> "torch.optim.Optimizer":
    """Return an optimizer; call ``set_hyperparams`` before each step."""
    # AdamW runs in one kernel for all parameters on CPU and CUDA. The state of AdamW, LAMB and
    # StableAdamW is ``step``, ``exp_avg`` and ``exp_avg_sq`` for each parameter; Adagrad's ``step``
    # and ``sum``, from the beginning; Adafactor's is in its docstring. Parameters may be
    # ``DTensor``.
    import torch

    from zoo.training.optim.eager import eager

    if config.name == "adafactor":
        from zoo.training.optim.adafactor import Adafactor

        return eager(Adafactor)(
            groups,
            lr=config.learning_rate,
            min_dim_size_to_factor=config.min_dim_size_to_factor,
        )
    if config.name == "adagrad":
        return eager(torch.optim.Adagrad)(
            groups,
            lr=config.learning_rate,
            initial_accumulator_value=config.initial_accumulator_value,
            eps=0.0,
        )
    shared: dict[str, Any] = {
        "lr": config.learning_rate,
        "betas": config.betas,
        "eps": config.eps,
    }
    if config.name == "lamb":
        from zoo.training.optim.lamb import Lamb

        return eager(Lamb)(groups, **shared, bias_correction=config.bias_correction)
    if config.name == "stable-adamw":
        from zoo.training.optim.stable_adamw import StableAdamW

        return eager(StableAdamW)(groups, **shared, bias_correction=config.bias_correction)
    devices = {parameter.device.type for group in groups for parameter in group["params"]}
    return eager(torch.optim.AdamW)(groups, **shared, fused=devices <= {"cpu", "cuda"} or None)


def set_hyperparams(
    optimizer: "torch.optim.Optimizer", config: OptimizerConfig, lr: float, step: int
) -> None:
    """Set learning rate, epsilon and weight decay of the next ``optimizer.step()``."""
    # torch's AdamW always corrects the bias of its means m and v. Without correction, the update is
    # lr * m / (sqrt(v) + eps), which equals the corrected formula
    #
    # rate * (m / c1) / (sqrt(v / c2) + e), c1 = 1 - beta1 ** t, c2 = 1 - beta2 ** t
    #
    # with rate = lr * c1 / sqrt(c2) and e = eps / sqrt(c2). Weight decay stays lr * decay * weight
    # if the decay is divided by c1 / sqrt(c2). AdamW applies it before the update instead of with
    # it, which is equivalent: m and v do not depend on the weight. Without correction, each
    # parameter must have a gradient either in every update or in none.
    root = factor = 1.0
    if config.name == "adamw" and not config.bias_correction:
        beta1, beta2 = config.betas
        root = math.sqrt(1 - beta2 ** (step + 1))
        factor = (1 - beta1 ** (step + 1)) / root
    for group in optimizer.param_groups:
        group["lr"] = lr * group["scale"] * factor
        group["weight_decay"] = config.weight_decay / factor if group["decayed"] else 0.0
        if config.name == "adamw":
            group["eps"] = config.eps / root


def clip_grad_norm(parameters: "Iterable[nn.Parameter]", limit: float | None) -> "Tensor":
    """Clip the norm of all gradients together, without synchronization with the device."""
    # The caller must check that the norm is finite before it updates the weights.
    import torch

    with_grad = [parameter for parameter in parameters if parameter.grad is not None]
    if limit is None:
        norm = torch.nn.utils.get_total_norm([p.grad for p in with_grad if p.grad is not None])
    else:
        norm = torch.nn.utils.clip_grad_norm_(with_grad, limit)
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
