"""Gathering of rows from all processes, with gradients."""

from typing import Any

import torch
from torch import Tensor, distributed


class _GatherRows(torch.autograd.Function):
    """Rows of all processes; the backward pass adds the gradients that all have of them."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(distributed.get_world_size())]
        distributed.all_gather(parts, rows)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous()
        distributed.all_reduce(total)
        return total.chunk(distributed.get_world_size())[distributed.get_rank()]


def gather_rows(rows: Tensor) -> Tensor:
    """Return the rows of all processes in order of ranks, through which gradients flow.

    If each process adds a part to a loss, the gradient of its own rows is the gradient of the sum.

    Args:
        rows: (rows, ...), with the same shape in all processes.
    """
    gathered: Tensor = _GatherRows.apply(rows.contiguous())  # type: ignore[no-untyped-call]
    return gathered


def process_count() -> int:
    """Return the number of processes of the run, 1 without a process group."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return distributed.get_world_size()
