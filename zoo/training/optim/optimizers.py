"""What turns gradients into updates, set up so that it follows papers and their released code."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


class OptimizerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How weights are updated.

    Attributes:
        name: ``adamw`` (Loshchilov and Hutter 2019, arXiv:1711.05101), ``adafactor`` (see
            ``zoo.training.optim.adafactor``), ``lamb`` (see ``zoo.training.optim.lamb``) or ``adagrad``
            (Duchi et al. 2011, Journal of Machine Learning Research 12).
        learning_rate: the highest of the lr_scheduler. In Adafactor, a part of the root mean square
            of each parameter.
        betas: decay of the means of the gradient and of its square; of AdamW and LAMB.
        eps: added to the root of the mean square; of AdamW and LAMB.
        initial_accumulator_value: what Adagrad's sums of squared gradients begin with. There is no ``eps``
            beside it, as in TensorFlow's ``AdagradOptimizer``.
        weight_decay: what a weight loses in an update, as a part of it, is this times the rate.
            Biases and norms lose nothing. Adagrad knows none.
        bias_correction: whether AdamW and LAMB make up for means that start at zero. Released
            code often does not: ``AdamWeightDecayOptimizer`` of Devlin et al. 2019
            (arXiv:1810.04805) and of Clark et al. 2020 (arXiv:2003.10555), and the LAMB of
            Lan et al. 2020 (arXiv:1909.11942).
        layerwise_lr_decay: what the rate is multiplied by from each layer to the one below it; see
            ``zoo.training.optim.param_groups.layerwise_lr_scales``.
        max_grad_norm: the highest norm of all gradients together; ``None`` for no limit.
    """

    name: Literal["adamw", "adafactor", "lamb", "adagrad"] = "adamw"
    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    initial_accumulator_value: float = 0.1
    weight_decay: float = 0.0
    bias_correction: bool = True
    layerwise_lr_decay: float = 1.0
    max_grad_norm: float | None = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ValueError: a number is out of its range.
        """
        for name in (
            "learning_rate",
            "eps",
            "initial_accumulator_value",
            "layerwise_lr_decay",
            "max_grad_norm",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}, which is not positive and finite")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay is {self.weight_decay}, not 0 or more and finite")
        if self.name == "adagrad" and self.weight_decay:
            raise ValueError(f"weight_decay is {self.weight_decay}, and adagrad has none: give 0")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are {self.betas}, and each is at least 0 and less than 1")


def make_optimizer(
    groups: Sequence[dict[str, Any]], settings: OptimizerConfig
) -> "torch.optim.Optimizer":
    """Return an optimizer, which does as is set once ``set_hyperparams`` was called before each step.

    AdamW runs in one kernel for all parameters on CPU and CUDA. The state of AdamW and LAMB is
    ``step``, ``exp_avg`` and ``exp_avg_sq`` for each parameter; that of Adagrad ``step`` and
    ``sum``, which it has from the beginning; that of Adafactor is in its docstring. All of it goes
    through ``state_dict`` and back unchanged. Parameters may be ``DTensor``.

    Args:
        groups: of ``zoo.training.optim.param_groups.parameter_groups``.
        settings: the same as theirs.
    """
    import torch

    if settings.name == "adafactor":
        from zoo.training.optim.adafactor import Adafactor

        return Adafactor(groups, lr=settings.learning_rate)
    if settings.name == "adagrad":
        return torch.optim.Adagrad(
            groups,
            lr=settings.learning_rate,
            initial_accumulator_value=settings.initial_accumulator_value,
            eps=0.0,
        )
    shared: dict[str, Any] = {
        "lr": settings.learning_rate,
        "betas": settings.betas,
        "eps": settings.eps,
    }
    if settings.name == "lamb":
        from zoo.training.optim.lamb import Lamb

        return Lamb(groups, **shared, bias_correction=settings.bias_correction)
    devices = {parameter.device.type for group in groups for parameter in group["params"]}
    return torch.optim.AdamW(groups, **shared, fused=devices <= {"cpu", "cuda"} or None)


def set_hyperparams(
    optimizer: "torch.optim.Optimizer", settings: OptimizerConfig, lr: float, step: int
) -> None:
    """Prepare an update: call it before each ``optimizer.step()``.

    torch's AdamW always corrects the bias of its means m and v. Without correction, the update
    is lr * m / (sqrt(v) + eps), and the same number comes out of the correcting formula

        rate * (m / c1) / (sqrt(v / c2) + e),  c1 = 1 - beta1 ** t,  c2 = 1 - beta2 ** t

    with rate = lr * c1 / sqrt(c2) and e = eps / sqrt(c2). Weight decay stays lr * decay * weight
    where the decay is divided by c1 / sqrt(c2). AdamW takes it off before the update instead of
    with it, which is the same: m and v do not depend on the weight.

    Args:
        optimizer: of ``make_optimizer``.
        settings: the same as there.
        lr: learning rate of this update, before groups scale it.
        step: the update, from 0 for the first. Without bias correction, each parameter either
            has a gradient in every update or in none.
    """
    root = factor = 1.0
    if settings.name == "adamw" and not settings.bias_correction:
        beta1, beta2 = settings.betas
        root = math.sqrt(1 - beta2 ** (step + 1))
        factor = (1 - beta1 ** (step + 1)) / root
    for group in optimizer.param_groups:
        group["lr"] = lr * group["scale"] * factor
        group["weight_decay"] = settings.weight_decay / factor if group["decayed"] else 0.0
        if settings.name == "adamw":
            group["eps"] = settings.eps / root


def clip_grad_norm(parameters: "Iterable[nn.Parameter]", limit: float | None) -> "Tensor":
    """Scale gradients so that the norm of all of them together is at most a limit.

    Nothing waits for the device. Where the norm is not finite, the gradients are of no use
    either: the caller looks at the norm before it updates.

    Args:
        parameters: those without a gradient are passed over.
        limit: the highest norm; ``None`` to measure alone.

    Returns:
        the norm before scaling: a scalar on the gradients' device, of all ranks' parts if the
        parameters are sharded.
    """
    import torch

    given = [parameter for parameter in parameters if parameter.grad is not None]
    if limit is None:
        norm = torch.nn.utils.get_total_norm([p.grad for p in given if p.grad is not None])
    else:
        norm = torch.nn.utils.clip_grad_norm_(given, limit)
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
