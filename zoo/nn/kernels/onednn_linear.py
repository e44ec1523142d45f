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
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

CPUINFO = Path("/proc/cpuinfo")
INTEL = "GenuineIntel"
LEAST = 1 << 16  # elements of a matrix


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


class OneDnnLinear(nn.Linear):
    """``nn.Linear`` by oneDNN, with the same parameters."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        is_other = torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
        if is_other or x.dtype != torch.float32 or self.weight.dtype != torch.float32:
            return F.linear(x, self.weight, self.bias)
        if not torch.is_grad_enabled():
            return _product(x, self.weight, self.bias)
        return _OneDnnProduct.apply(x, self.weight, self.bias)  # type: ignore[no-any-return, no-untyped-call]


class _OneDnnProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows = gradient.reshape(-1, gradient.shape[-1])
        return (
            _product(gradient, weight.T) if of_x else None,
            _product(rows.T, x.reshape(-1, x.shape[-1]).T) if of_weight else None,
            rows.sum(0) if of_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x weight^T + bias, (..., out)."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result


def use_onednn(model: nn.Module) -> None:
    """Turn the linear maps of a model into ``OneDnnLinear``, in place."""
    for module in model.modules():
        # not a subclass, which may compute something else; a call takes longer than the products of
        # a small matrix
        if type(module) is nn.Linear and module.weight.numel() >= LEAST:
            module.__class__ = OneDnnLinear


def counted_products() -> dict[Any, Callable[..., int]]:
    """Return operator -> its FLOPs for the shapes of its arguments, for ``FlopCounterMode``."""
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return {}

    def flops(x: Sequence[int], weight: Sequence[int], *_: object, **__: object) -> int:
        return 2 * math.prod(x) * weight[0]

    return {torch.ops.mkldnn._linear_pointwise: flops}
