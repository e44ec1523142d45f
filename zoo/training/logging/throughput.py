"""Throughput of a run: tokens per second, and MFU (model FLOPs utilization)."""

import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Peak FLOP/s in bfloat16 (float16 where a device has no bfloat16) with dense matrices, from
# NVIDIA's data sheets; where a sheet gives the rate with sparsity, half of it. The first pattern
# that matches the device's name counts.
PEAK_FLOPS = (
    (r"\bB200\b", 2250e12),  # HGX B200
    (r"\bG?H200\b", 989e12),  # H200 SXM; GH200
    (r"\bH100 PCIe\b", 756e12),
    (r"\bH100 NVL\b", 835e12),
    (r"\bH100\b", 989e12),  # H100 SXM
    (r"\bA100\b", 312e12),
    (r"\bL40S\b", 362e12),
    (r"\bL4\b", 121e12),
    (r"\bA10\b", 125e12),
    (r"\bV100\b", 125e12),  # float16
    (r"\bRTX 4090$", 165e12),
    (r"\bT4\b", 65e12),  # float16
)


def peak_flops(device: "torch.device") -> float | None:
    """Return the peak FLOP/s of a device in half precision, ``None`` for CPUs and others."""
    import torch

    if device.type != "cuda":
        return None
    return _peak(torch.cuda.get_device_name(device))


def _peak(device_name: str) -> float | None:
    if " MIG " in device_name:
        return None
    for pattern, peak in PEAK_FLOPS:
        if re.search(pattern, device_name):
            return peak
    return None


def training_flops(loss: "Callable[[], torch.Tensor]", parameters: "Iterable[torch.Tensor]") -> int:
    """Return the FLOPs of a forward and a backward pass.

    Only matrix products count, as in PaLM (Chowdhery et al. 2022, appendix B), whose formula for a
    decoder, 6 N + 12 L H Q T per token, is reproduced; but for any architecture, and with logits at
    as many positions as the objective predicts. Gradients are left as they are.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode, bmm_flop

    from zoo.nn.kernels.onednn_linear import counted_products

    def product_flops(total: object, left: object, right: object, **options: object) -> int:
        return int(bmm_flop(left, right))

    # The counter does not know the products of attention in blocks, and of linear maps by oneDNN.
    product_counters = {torch.ops.aten.baddbmm_: product_flops, **counted_products()}
    trained_parameters = [parameter for parameter in parameters if parameter.requires_grad]
    gradients = [parameter.grad for parameter in trained_parameters]
    for parameter in trained_parameters:
        parameter.grad = None
    # The counter misses the fused kernels on a CPU, and counts recomputed work on CUDA.
    with (
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False, custom_mapping=product_counters) as counter,
    ):
        # The hooks of the counter do not run in autograd.grad if a module is called on a parameter.
        torch.autograd.backward(loss(), inputs=trained_parameters)
    for parameter, gradient in zip(trained_parameters, gradients, strict=True):
        parameter.grad = gradient
    return int(counter.get_total_flops())


class Throughput:
    """Measures the duration of steps."""

    def __init__(
        self,
        device: "torch.device",
        *,
        devices: int = 1,
        window: int = 50,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._peak = peak_flops(device)
        self.device = device
        self.devices = devices
        self._clock = clock
        self._mfu_per_rate: float | None = None  # MFU at one token per second.
        self._steps: deque[tuple[int, float]] = deque(maxlen=window)
        now = clock()
        self._step_start = now
        self._record_start = now

    def reset(self, flops_per_token: float | None) -> None:
        """Discard the measured steps, because the following ones have a different length."""
        self._steps.clear()
        self._mfu_per_rate = None
        if flops_per_token and self._peak:
            self._mfu_per_rate = flops_per_token / (self._peak * self.devices)
        self._step_start = self._clock()

    def step(self, tokens: int) -> None:
        """Record the end of a step."""
        now = self._clock()
        self._steps.append((tokens, now - self._step_start))
        self._step_start = now

    def resume(self) -> None:
        """Start the clock of a step; the time since the last step does not count in steps."""
        # Logging, evaluation and saving happen between steps.
        self._step_start = self._clock()

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second over the last steps; ``None`` before the first step."""
        seconds = sum(duration for _, duration in self._steps)
        if not seconds:
            return None
        return sum(tokens for tokens, _ in self._steps) / seconds

    @property
    def mfu(self) -> float | None:
        """Model FLOPs per second as a fraction of the devices' peak; ``None`` if unknown."""
        rate = self.tokens_per_second
        if rate is None or self._mfu_per_rate is None:
            return None
        return rate * self._mfu_per_rate

    def speed(self) -> dict[str, float]:
        """Return tokens per second and MFU, as far as they are known."""
        values = {"tokens_per_second": self.tokens_per_second, "mfu": self.mfu}
        return {name: value for name, value in values.items() if value is not None}

    def record(self, step: int) -> dict[str, Any]:
        """Return a record for ``performance.jsonl``.

        ``memory_bytes`` is the peak of this process so far, on the device or in main memory.
        ``seconds`` is the time since the last record, evaluation and saving included, so that the
        records sum to the duration of the run.
        """
        now = self._clock()
        seconds = now - self._record_start
        self._record_start = now
        seconds_per_step = None
        if self._steps:
            durations = [duration for _, duration in self._steps]
            seconds_per_step = sum(durations) / len(durations)
        values = {
            "step": step,
            "tokens_per_second": self.tokens_per_second,
            "seconds_per_step": seconds_per_step,
            "mfu": self.mfu,
            "memory_bytes": peak_memory(self.device),
            "seconds": seconds,
        }
        return {name: value for name, value in values.items() if value is not None}


def peak_memory(device: "torch.device") -> int:
    """Return the peak memory of this process in bytes, on a CUDA device or in main memory.

    0 where the system does not tell.
    """
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
