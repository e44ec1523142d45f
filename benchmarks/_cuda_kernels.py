"""Kernels of attention in ``benchmarks.cuda``: forward and backward passes of packed rows.

Which kernel is fastest, with and without dropout, decides what ``zoo.nn.kernels.packed_attention``
should call. All are given 32,768 tokens in rows of full length, and 12 heads of width 64.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import attention
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks._cuda_cells import Barrier, Cell
from benchmarks._cuda_training import prepare

TOKENS = 32_768
HEADS = 12
SIZE = 64
REPEATS = 20
DROPOUT = 0.1
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Kernel:
    """A way to compute attention.

    Attributes:
        attend: the forward pass.
        packed: whether it takes flat tokens with offsets, instead of rows.
        implementation: what takes the place of PyTorch's flash kernels, a package of its own.
    """

    attend: Attend
    packed: bool
    implementation: str | None = None

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Use the implementation; an error where its package is missing."""
        if self.implementation is None:
            yield
            return
        attention.activate_flash_attention_impl(self.implementation)
        try:
            yield
        finally:
            attention.restore_flash_attention_impl()


def measure(cell: Cell, barrier: Barrier) -> dict[str, Any]:
    """Time each kernel at a length, ``cell.name``: milliseconds, or why it did not run."""
    device = prepare(cell)
    length = 16 if cell.tiny else int(cell.name)
    rows = 2 if cell.tiny else TOKENS // length
    candidates = kernels(length, rows, device)
    for kernel in candidates.values():  # so that none is timed the first time
        milliseconds(kernel, length, rows, device, repeats=1)
    barrier()
    repeats = 1 if cell.tiny else REPEATS
    return {
        "milliseconds": {
            name: milliseconds(kernel, length, rows, device, repeats=repeats)
            for name, kernel in candidates.items()
        }
    }


def kernels(length: int, rows: int, device: torch.device) -> dict[str, Kernel]:
    """Return the kernels by name."""
    offsets = torch.arange(0, rows * length + 1, length, dtype=torch.int32, device=device)

    def flash(dropout: float) -> Attend:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            outputs = torch.ops.aten._flash_attention_forward(
                q, k, v, offsets, offsets, length, length, dropout, False, False
            )
            return outputs[0]  # type: ignore[no-any-return]

        return attend

    def varlen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        return varlen_attn(q, k, v, offsets, offsets, length, length)  # type: ignore[return-value]

    def sdpa(backend: SDPBackend, dropout: float) -> Attend:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)

        return attend

    candidates = {
        "flash, offsets, dropout": Kernel(flash(DROPOUT), packed=True),
        "flash, offsets": Kernel(flash(0.0), packed=True),
        "varlen_attn": Kernel(varlen, packed=True),
        "FA3, offsets": Kernel(flash(0.0), packed=True, implementation="FA3"),
        "FA4, offsets": Kernel(flash(0.0), packed=True, implementation="FA4"),
    }
    for backend in (
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.MATH,
    ):
        candidates[f"{backend.name}, rows"] = Kernel(sdpa(backend, 0.0), packed=False)
        candidates[f"{backend.name}, rows, dropout"] = Kernel(sdpa(backend, DROPOUT), packed=False)
    return candidates


def milliseconds(
    kernel: Kernel, length: int, rows: int, device: torch.device, *, repeats: int
) -> float | str:
    """Return the time of a forward and a backward pass, or why there is none."""
    shape = (rows * length, HEADS, SIZE) if kernel.packed else (rows, HEADS, length, SIZE)
    generator = torch.Generator(device).manual_seed(0)
    q, k, v, gradient = (
        torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)
        for _ in range(4)
    )
    operands = [x.requires_grad_() for x in (q, k, v)]

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    try:
        with kernel.active():
            start = now()
            for _ in range(repeats):
                torch.autograd.grad(kernel.attend(q, k, v), operands, gradient)
            return (now() - start) / repeats * 1e3
    except (AttributeError, ImportError, RuntimeError, ValueError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return lines[0][:80]
