"""Linear maps in float32 by oneDNN, on CPUs where torch's own products are slow."""

import functools
import math
import platform
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CPUINFO = Path("/proc/cpuinfo")
INTEL = "GenuineIntel"
LEAST = 1 << 20  # multiplications: the call of oneDNN takes longer than fewer of them


@functools.cache
def is_faster() -> bool:
    """Return whether oneDNN computes products faster than torch's default, MKL.

    MKL uses all instructions on Intel's CPUs only. The choice depends on the vendor, not on a
    measurement, so that results do not change between runs.
    """
    backends: Any = torch.backends
    built = backends.mkl.is_available() and backends.mkldnn.is_available()
    if not built or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if platform.machine() != "x86_64" or not CPUINFO.is_file():
        return False
    vendor = re.search(r"vendor_id\s*:\s*(\w+)", CPUINFO.read_text("utf-8", "replace"))
    return vendor is not None and vendor[1] != INTEL


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``torch.nn.functional.linear`` by the faster library: (..., in) to (..., out)."""
    # weight: (out, in); bias: (out,)
    if not is_for_onednn(x, weight):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _product(x, weight, bias)
    return _OneDnnProduct.apply(x, weight, bias)  # type: ignore[no-any-return, no-untyped-call]


def is_for_onednn(x: Tensor, weight: Tensor) -> bool:
    """Return whether ``linear`` computes a product by oneDNN."""
    if torch.compiler.is_compiling() or x.numel() * len(weight) < LEAST:
        return False
    if not x.dtype == torch.float32 == weight.dtype or x.device.type != "cpu":
        return False
    return is_faster() and not torch.is_autocast_enabled("cpu")


class OneDnnLinear(nn.Linear):
    """``nn.Linear`` by ``linear``, with the same parameters."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        return linear(x, self.weight, self.bias)


class _OneDnnProduct(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        flat = _product(x.reshape(-1, x.shape[-1]), weight, bias)
        # a view may not be changed in place outside
        y: Tensor = torch.ops.aten._unsafe_view(flat, (*x.shape[:-1], len(weight)))
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Any) -> None:
        x, weight, _ = inputs
        input_needs_grad, weight_needs_grad, _ = ctx.needs_input_grad
        # The gradient of the input needs the weight, and that of the weight the input.
        saved_input = x if weight_needs_grad else None
        saved_weight = weight if input_needs_grad else None
        ctx.save_for_backward(saved_input, saved_weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        rows = gradient.reshape(-1, gradient.shape[-1])
        # The gradient has gradients of its own where they are needed.
        product = _OneDnnProduct.apply if torch.is_grad_enabled() else _product
        input_gradient = None
        if weight is not None:
            input_gradient = product(gradient, weight.T, None)
        weight_gradient = None
        if x is not None:
            # With columns of a larger tensor, such as one direction of a layer, the product would
            # take a hundred times as long.
            inputs = x.reshape(-1, x.shape[-1]).contiguous()
            weight_gradient = product(rows.T, inputs.T, None)
        bias_gradient = rows.sum(0) if ctx.needs_input_grad[2] else None
        return input_gradient, weight_gradient, bias_gradient


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x weight^T + bias, (..., out)."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result


def use_onednn(model: nn.Module) -> None:
    """Turn the linear maps of a model into ``OneDnnLinear``, in place."""
    for module in model.modules():
        if type(module) is nn.Linear:  # not a subclass, which may compute something else
            module.__class__ = OneDnnLinear


def counted_products() -> dict[Any, Callable[..., int]]:
    """Return operator -> its FLOPs for the shapes of its arguments, for ``FlopCounterMode``."""
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return {}

    def flops(x: Sequence[int], weight: Sequence[int], *_: object, **__: object) -> int:
        return 2 * math.prod(x) * weight[0]

    return {torch.ops.mkldnn._linear_pointwise: flops}
