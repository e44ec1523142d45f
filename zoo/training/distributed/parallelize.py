"""Wrapping of the model for its devices: checkpointing, FSDP, DDP; gathering of rows."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.utils.checkpoint import checkpoint

from zoo.nn.layers.layer_drop import run_skipped_blocks
from zoo.training.config.run_config import RunConfig
from zoo.training.distributed.context import DistContext
from zoo.training.loss_module import LossModule


def parallelize(loss_module: LossModule, config: RunConfig, dist: DistContext) -> nn.Module:
    """Return the module that the trainer calls; FSDP replaces the parameters in place."""
    if config.gradient_checkpointing:
        for block in transformer_blocks(loss_module):
            recomputed = partial(checkpoint, block.forward, use_reentrant=False)
            block.forward = recomputed
    if dist.world_size > 1:
        run_skipped_blocks(loss_module)
    if config.fsdp and dist.world_size > 1:
        apply_fsdp(loss_module, dist)
    wrapped: nn.Module = loss_module
    if config.compile:
        wrapped = torch.compile(wrapped)  # type: ignore[assignment]
    if dist.world_size > 1 and not config.fsdp:
        devices = [dist.device] if dist.device.type == "cuda" else None
        unused = not loss_module.objective.uses_all_parameters
        wrapped = nn.parallel.DistributedDataParallel(
            wrapped, device_ids=devices, find_unused_parameters=unused
        )
    return wrapped


def apply_fsdp(loss_module: LossModule, dist: DistContext) -> None:
    """Shard parameters over processes, block by block (Zhao et al. 2023, arXiv:2304.11277)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(dist.device.type, (dist.world_size,))
    for block in transformer_blocks(loss_module):
        fully_shard(block, mesh=mesh)
    fully_shard(loss_module, mesh=mesh)


def transformer_blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the blocks of a model: the modules in lists called ``layers``."""
    for name, stack in module.named_modules():
        if name.split(".")[-1] == "layers" and isinstance(stack, nn.ModuleList):
            yield from stack


def set_requires_grad_sync(wrapped: nn.Module, last: bool) -> None:
    """Synchronize gradients only in the backward pass of a step's last micro-batch."""
    if isinstance(wrapped, nn.parallel.DistributedDataParallel):
        wrapped.require_backward_grad_sync = last
    for module in wrapped.modules():
        change = getattr(module, "set_requires_gradient_sync", None)
        if change is not None:
            change(last, recurse=False)


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the full tensor of a possible DTensor; all processes must call it."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


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
