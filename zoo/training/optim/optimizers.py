"""The optimizers by name, and gradient clipping."""

# torch and the classes of optimizers are imported when one is made.

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from zoo.errors import UsageError, did_you_mean
from zoo.families.recipe import OptimizerConfig
from zoo.overrides import override
from zoo.plugins.catalog import Catalog
from zoo.training.optim.base import OptimizerMethod

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

OPTIMIZERS: Catalog[OptimizerMethod] = Catalog(
    "optimizers",
    "zoo.training.optim.base:OptimizerMethod",
    {
        "adamw": "zoo.training.optim.optimizers:AdamWMethod",
        "adafactor": "zoo.training.optim.optimizers:AdafactorMethod",
        "lamb": "zoo.training.optim.optimizers:LambMethod",
        "stable-adamw": "zoo.training.optim.optimizers:StableAdamWMethod",
        "adagrad": "zoo.training.optim.optimizers:AdagradMethod",
    },
)


SMALLEST_NORM = 1e-6  # added to the norm of gradients, as in ``torch.nn.utils``


def optimizer_method(config: OptimizerConfig) -> OptimizerMethod:
    """Return the optimizer that settings name, with its own settings.

    Raises:
        UsageError: no optimizer has this name, or it does not have these settings.
    """
    method = OPTIMIZERS.find(config.name)
    own_settings = config.args or {}
    names = [field.encode_name for field in msgspec.structs.fields(method)]
    for key in own_settings:
        if key not in names:
            hint = "it has none of its own"
            if names:
                hint = did_you_mean(key, names) or f"it has {', '.join(names)}"
            raise UsageError(
                f"the optimizer {config.name} has no setting {key!r} in optimizer.args", hint
            )
    if config.weight_decay and not method.has_weight_decay:
        raise UsageError(
            f"optimizer.weight_decay is {config.weight_decay}, and {config.name} has none",
            "give 0",
        )
    try:
        return msgspec.convert(dict(own_settings), method)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"the optimizer {config.name}: {error}") from error


class AdamWMethod(OptimizerMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101).

    Attributes:
        amsgrad: whether to divide by the largest mean of squared gradients so far (Reddi et al.
            2018, "On the convergence of Adam and beyond", algorithm 2).
    """

    # It runs in one kernel for all parameters on CPU and CUDA. The state of a parameter is
    # ``step``, ``exp_avg`` and ``exp_avg_sq``, also of LAMB and StableAdamW; with AMSGrad
    # ``max_exp_avg_sq`` as well.
    name: ClassVar[str] = "adamw"

    amsgrad: bool = False

    @override
    def make(
        self, groups: Sequence[dict[str, Any]], config: OptimizerConfig
    ) -> "torch.optim.Optimizer":
        import torch

        from zoo.training.optim.eager import eager

        devices = {parameter.device.type for group in groups for parameter in group["params"]}
        settings = _adam_settings(config)
        if devices == {"cpu"} and self.takes_row_gradients:
            from zoo.training.optim.row_adamw import RowAdamW

            return eager(RowAdamW)(groups, **settings)
        fused = True if devices <= {"cpu", "cuda"} else None
        return eager(torch.optim.AdamW)(groups, **settings, fused=fused, amsgrad=self.amsgrad)

    @property
    @override
    def takes_row_gradients(self) -> bool:
        return not self.amsgrad

    @override
    def set_hyperparams(
        self, optimizer: "torch.optim.Optimizer", config: OptimizerConfig, lr: float, step: int
    ) -> None:
        # torch's AdamW always corrects the bias of its means m and v. Without correction, the
        # update is lr * m / (sqrt(v) + eps), which equals the corrected formula
        #
        # rate * (m / c1) / (sqrt(v / c2) + e), c1 = 1 - beta1 ** t, c2 = 1 - beta2 ** t
        #
        # with rate = lr * c1 / sqrt(c2) and e = eps / sqrt(c2). Weight decay stays lr * decay *
        # weight if the decay is divided by c1 / sqrt(c2). AdamW applies it before the update
        # instead of with it, which is equivalent: m and v do not depend on the weight. Without
        # correction, each parameter must have a gradient either in every update or in none.
        root = 1.0
        factor = 1.0
        if not config.bias_correction:
            beta1, beta2 = config.betas
            root = math.sqrt(1 - beta2 ** (step + 1))
            factor = (1 - beta1 ** (step + 1)) / root
        for group in optimizer.param_groups:
            group["lr"] = lr * group["scale"] * factor
            group["weight_decay"] = config.weight_decay / factor if group["decayed"] else 0.0
            group["eps"] = config.eps / root


class AdafactorMethod(OptimizerMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Adafactor; see ``zoo.training.optim.adafactor``."""

    name: ClassVar[str] = "adafactor"

    @override
    def make(
        self, groups: Sequence[dict[str, Any]], config: OptimizerConfig
    ) -> "torch.optim.Optimizer":
        from zoo.training.optim.adafactor import Adafactor
        from zoo.training.optim.eager import eager

        return eager(Adafactor)(
            groups,
            lr=config.learning_rate,
            min_dim_size_to_factor=config.min_dim_size_to_factor,
        )


class LambMethod(OptimizerMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """LAMB; see ``zoo.training.optim.adam``."""

    name: ClassVar[str] = "lamb"

    @override
    def make(
        self, groups: Sequence[dict[str, Any]], config: OptimizerConfig
    ) -> "torch.optim.Optimizer":
        from zoo.training.optim.adam import Lamb
        from zoo.training.optim.eager import eager

        correction = config.bias_correction
        return eager(Lamb)(groups, **_adam_settings(config), bias_correction=correction)


class StableAdamWMethod(OptimizerMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """StableAdamW; see ``zoo.training.optim.adam``."""

    name: ClassVar[str] = "stable-adamw"

    @override
    def make(
        self, groups: Sequence[dict[str, Any]], config: OptimizerConfig
    ) -> "torch.optim.Optimizer":
        from zoo.training.optim.adam import StableAdamW
        from zoo.training.optim.eager import eager

        correction = config.bias_correction
        return eager(StableAdamW)(groups, **_adam_settings(config), bias_correction=correction)


class AdagradMethod(OptimizerMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Adagrad (Duchi et al. 2011, Journal of Machine Learning Research 12)."""

    # The state of a parameter is ``step`` and ``sum``, from the beginning.
    name: ClassVar[str] = "adagrad"
    has_weight_decay: ClassVar[bool] = False

    @override
    def make(
        self, groups: Sequence[dict[str, Any]], config: OptimizerConfig
    ) -> "torch.optim.Optimizer":
        import torch

        from zoo.training.optim.eager import eager

        return eager(torch.optim.Adagrad)(
            groups,
            lr=config.learning_rate,
            initial_accumulator_value=config.initial_accumulator_value,
            eps=0.0,
        )


def _adam_settings(config: OptimizerConfig) -> dict[str, Any]:
    return {"lr": config.learning_rate, "betas": config.betas, "eps": config.eps}


def clip_grad_norm(parameters: "Iterable[nn.Parameter]", limit: float | None) -> "Tensor":
    """Clip the norm of all gradients together, without synchronization with the device."""
    # The caller must check that the norm is finite before it updates the weights.
    import torch

    with_grad = [parameter for parameter in parameters if parameter.grad is not None]
    gradients = [_values(parameter.grad) for parameter in with_grad if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if hasattr(norm, "full_tensor"):
        norm = norm.full_tensor()  # Otherwise, its uses below would gather it several times.
    if limit is None:
        return norm
    factor = (limit / (norm + SMALLEST_NORM)).clamp(max=1.0)
    # On a CPU, the factor is read without waiting, and 1 changes nothing.
    if norm.device.type != "cpu" or factor < 1:
        torch._foreach_mul_(gradients, factor)
    return norm


def _values(gradient: "Tensor") -> "Tensor":
    """Return the values of a gradient, of which a sparse one has each row once, for writing."""
    return gradient.values() if gradient.is_sparse else gradient
