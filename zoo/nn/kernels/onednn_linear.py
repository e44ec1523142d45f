"""Linear maps in float32 by oneDNN, on CPUs where torch's own products are slow."""

import functools
import platform
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CPUINFO = Path("/proc/cpuinfo")
INTEL = "GenuineIntel"


@functools.cache
def is_faster() -> bool:
    """Return whether oneDNN computes products faster than torch's default, MKL.

    MKL uses all instructions on Intel's CPUs only. On an AMD EPYC with AVX-512, products of 400
    rows with matrices of small encoders reach 112 giga-operations a second on one thread by MKL,
    and 250 by oneDNN. The choice depends on the vendor, not on a measurement, so that results do
    not change between runs.
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
    """``nn.Linear`` by oneDNN, with the same parameters; with gradients by torch's default."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in) to (..., out)."""
        if torch.is_grad_enabled() or x.dtype != torch.float32:
            return F.linear(x, self.weight, self.bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.weight, self.bias, "none", [], ""
        )
        return product


def use_onednn(model: nn.Module) -> None:
    """Turn the linear maps of a model into ``OneDnnLinear``, in place."""
    for module in model.modules():
        if type(module) is nn.Linear:  # not a subclass, which may compute something else
            module.__class__ = OneDnnLinear
