"""Wrapping of the model for its devices: checkpointing, FSDP, DDP; gathering of rows."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.utils.checkpoint import checkpoint

from zoo.nn.layers.layer_drop import run_skipped_blocks
from zoo.training.config.run_config import RunConfig
from zoo.training.config.schema import FSDPConfig
from zoo.training.distributed.context import DistContext
from zoo.training.loss_module import LossModule

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy


def parallelize(loss_module: LossModule, config: RunConfig, dist: DistContext) -> nn.Module:
    """Return the module that the trainer calls; FSDP replaces the parameters in place."""
    if config.gradient_checkpointing:
        for block in transformer_blocks(loss_module):
            recomputed = partial(checkpoint, block.forward, use_reentrant=False)
            block.forward = recomputed
    if dist.world_size > 1:
        run_skipped_blocks(loss_module)
    if config.fsdp and dist.world_size > 1:
        apply_fsdp(loss_module, config.fsdp_config or FSDPConfig(), dist)
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


def apply_fsdp(loss_module: LossModule, config: FSDPConfig, dist: DistContext) -> None:
    """Shard parameters over processes, block by block (Zhao et al. 2023, arXiv:2304.11277)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    shard_size = dist.world_size // config.dp_replicate_size
    if config.dp_replicate_size > 1:
        # The first dimension is the slower one: the ranks of a machine are in one group.
        mesh_names = ("dp_replicate", "dp_shard")
        shape = (config.dp_replicate_size, shard_size)
        mesh = init_device_mesh(dist.device.type, shape, mesh_dim_names=mesh_names)
    else:
        mesh = init_device_mesh(dist.device.type, (shard_size,))
    reshard = config.reshard_after_forward
    policy = mixed_precision_policy(config)
    blocks = list(transformer_blocks(loss_module))
    for block in blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    # The inputs of the whole model have labels and outputs of teachers, which are not rounded.
    policy = replace(policy, cast_forward_inputs=False)
    # By itself, FSDP keeps the weights outside of the blocks, which the backward pass needs first.
    reshard_outside = None if reshard else False
    fully_shard(loss_module, mesh=mesh, reshard_after_forward=reshard_outside, mp_policy=policy)
    if policy.reduce_dtype is not None:
        # FSDP reads the gradient of a gathered weight also of a block that has not run yet, such as
        # those of a second model that the first micro-batch leaves out.
        for module in sharded_modules(loss_module):
            module.unshard()
            module.reshard()
    set_prefetching(blocks, config)
    # The trainer changes no loss in place.
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module \(FSDPLossModule\) returned")


def mixed_precision_policy(config: FSDPConfig) -> "MixedPrecisionPolicy":
    """Return the dtypes in which weights are gathered, and gradients reduced.

    Autocast is on as well: without it, norms, softmax and losses would be computed in bfloat16.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy

    if config.param_dtype == "float32":
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(
        param_dtype=getattr(torch, config.param_dtype),
        reduce_dtype=getattr(torch, config.reduce_dtype),
    )


def set_prefetching(blocks: Sequence[nn.Module], config: FSDPConfig) -> None:
    """Gather the weights of following blocks while one computes; the blocks are sharded."""
    for number, block in enumerate(blocks):
        following_blocks = blocks[number + 1 : number + 1 + config.forward_prefetch]
        if following_blocks:
            block.set_modules_to_forward_prefetch(list(following_blocks))  # type: ignore[operator]
        # By itself, FSDP gathers one block ahead in the backward pass.
        preceding_blocks = blocks[max(0, number - config.backward_prefetch) : number]
        if config.backward_prefetch > 1 and preceding_blocks:
            block.set_modules_to_backward_prefetch(preceding_blocks[::-1])  # type: ignore[operator]


def transformer_blocks(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the blocks of a model: the modules in lists called ``layers``."""
    for name, stack in module.named_modules():
        if name.split(".")[-1] == "layers" and isinstance(stack, nn.ModuleList):
            yield from stack


def set_requires_grad_sync(wrapped: nn.Module, config: RunConfig, *, last: bool) -> None:
    """Synchronize gradients only in the backward pass of a step's last micro-batch.

    Weights that FSDP keeps after a forward pass stay gathered until then as well.
    """
    if isinstance(wrapped, nn.parallel.DistributedDataParallel):
        wrapped.require_backward_grad_sync = last
    fsdp_config = config.fsdp_config or FSDPConfig()
    for module in sharded_modules(wrapped):
        module.set_requires_gradient_sync(last, recurse=False)
        if not fsdp_config.reshard_after_forward:
            module.set_reshard_after_backward(last, recurse=False)


def free_gathered_weights(wrapped: nn.Module) -> None:
    """Free the weights that FSDP keeps after a forward pass, if no backward pass follows."""
    # Otherwise the next forward pass would use them, also if the weights have changed since.
    for module in sharded_modules(wrapped):
        module.reshard()


def sharded_modules(wrapped: nn.Module) -> "Iterator[FSDPModule]":
    """Yield the modules that ``fully_shard`` was applied to."""
    for module in wrapped.modules():
        if hasattr(module, "set_requires_gradient_sync"):
            yield module  # type: ignore[misc]


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the full tensor of a possible DTensor; all processes must call it."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a possible DTensor."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()


def shard_like(tensor: Tensor, target: Tensor) -> Tensor:
    """Return a full tensor, sharded as a possible DTensor is; all processes must call it.

    Args:
        tensor: the full tensor, equal in all processes.
        target: a tensor of the same shape.
    """
    mesh = getattr(target, "device_mesh", None)
    if mesh is None:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    placements = target.placements  # type: ignore[attr-defined]
    return distribute_tensor(tensor.to(mesh.device_type), mesh, placements)


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
