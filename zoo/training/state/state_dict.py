"""State dict of a trainer: weights, optimizer state, EMA, metric sums and recurrent states."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from zoo.errors import VerificationError
from zoo.io.untrusted import parsing
from zoo.training.config.run_config import RunConfig
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.logging.aggregate import MetricSums
from zoo.training.loss_module import LossModule
from zoo.training.optim.base import OptimizerMethod
from zoo.training.optim.ema import EMA
from zoo.training.state.checkpoints import OPTIMIZER, OPTIMIZER_SHARDS, SHARDS, Tensors
from zoo.training.state.distributed import load_shards, shard_names
from zoo.training.state.recovery import SavedCheckpoint

SEPARATOR = ":"


class TrainerState(Protocol):
    """The attributes of a trainer that make up its state dict; see ``Trainer``."""

    loss_module: LossModule
    config: RunConfig
    dist: DistContext
    train_dataloader: BatchLoader
    param_groups: list[dict[str, Any]]
    optimizer_method: OptimizerMethod
    optimizer: torch.optim.Optimizer
    ema: EMA | None
    step: int
    optimizer_began: int
    tokens: int
    best: tuple[float, int] | None
    train_metrics: MetricSums
    recurrent_states: list[Tensors]


def trainer_state_dict(trainer: TrainerState) -> dict[str, Tensors]:
    """Return file stem -> tensors by name: weights, optimizer, EMA, metrics, recurrent states."""
    average = trainer.ema
    # state by ``parameter:key``
    names = [name for group in trainer.param_groups for name in group["names"]]
    state = trainer.optimizer.state_dict()["state"]
    # recurrent states of all micro-batches and ranks, concatenated in order of rows
    memories = trainer.recurrent_states[0] if trainer.recurrent_states else {}
    states = {
        name: torch.cat([memory[name] for memory in trainer.recurrent_states]) for name in memories
    }
    return {
        "weights": saved_state_dict(trainer.loss_module.model, trainer.config),
        OPTIMIZER: {
            f"{name}{SEPARATOR}{key}": torch.as_tensor(value)
            for number, name in enumerate(names)
            for key, value in state.get(number, {}).items()
        },
        "ema_decay": {} if average is None else average.state_dict(),
        "totals": trainer.train_metrics.values,
        "memory": trainer.dist.gather_rows(states),
    }


def load_trainer_state_dict(
    trainer: TrainerState, groups: Mapping[str, Tensors], saved: SavedCheckpoint
) -> None:
    """Load the state of a checkpoint into a new trainer."""
    path = saved.path
    if any(name.startswith(f"{SHARDS}/") for name in saved.meta.files):
        with parsing(path / SHARDS, "a sharded checkpoint of this model"):
            _load_shards(trainer, groups, path)
    else:
        weights = saved_state_dict(trainer.loss_module.model, trainer.config)
        copy_weights_into(weights, groups.get("weights", {}), path)
        with parsing(path, "a checkpoint of this model"):
            if saved.meta.optimizer == "saved":
                _set_optimizer(trainer, groups.get(OPTIMIZER, {}))
            if trainer.ema is not None:
                trainer.ema.load_state_dict(groups["ema_decay"])
    device = trainer.dist.device
    trainer.step = saved.meta.step
    trainer.tokens = saved.meta.tokens
    trainer.best = saved.meta.best
    trainer.optimizer_began = saved.meta.optimizer_began
    trainer.train_metrics.values = {k: v.to(device) for k, v in groups.get("totals", {}).items()}
    if rows := groups.get("memory", {}):  # of the global batch
        trainer.recurrent_states = [
            {name: tensor[micro.start : micro.stop].to(device) for name, tensor in rows.items()}
            for micro in trainer.train_dataloader.micro_batches
        ]


def _load_shards(trainer: TrainerState, groups: Mapping[str, Tensors], path: Path) -> None:
    """Load the sharded groups of a checkpoint, those that are not in ``groups``."""
    folders = [folder for n in (SHARDS, OPTIMIZER_SHARDS) if (folder := path / n).is_dir()]
    stored = {folder: shard_names(folder) for folder in folders}
    _allocate(trainer, set().union(*stored.values()))
    state = trainer_state_dict(trainer)
    wanted = {name: state[name] for name in state.keys() - groups.keys()}
    for folder, names in stored.items():
        load_shards(
            folder,
            {
                group: found
                for group, tensors in wanted.items()
                if (found := {k: t for k, t in tensors.items() if f"{group}/{k}" in names})
            },
        )
    labels = {f"{group}/{name}" for group, tensors in wanted.items() for name in tensors}
    if missing := labels.difference(*stored.values()):
        raise KeyError(min(missing))


def unique_state_dict(module: torch.nn.Module) -> Tensors:
    """Return the state dict of a module; tied parameters appear once, under their first name."""
    tensors: Tensors = {}
    seen = set()
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            tensors[name] = tensor.detach()
            seen.add(id(tensor))
    return tensors


def saved_state_dict(module: torch.nn.Module, config: RunConfig) -> Tensors:
    """Return the tensors of a model that a run saves: with an adapter, only what it trains."""
    # The others are the base's.
    tensors = unique_state_dict(module)
    if config.adapter is None:
        return tensors
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    return {name: tensor for name, tensor in tensors.items() if name in trained}


def load_unique_state_dict(
    module: torch.nn.Module, tensors: Mapping[str, torch.Tensor], path: Path
) -> None:
    """Copy tensors of ``unique_state_dict`` into a module."""
    copy_weights_into(unique_state_dict(module), tensors, path)


def copy_weights_into(
    weights: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor], path: Path
) -> None:
    """Copy tensors of a checkpoint into a model's, by name."""
    odd = weights.keys() ^ tensors.keys()
    odd |= {name for name in weights.keys() - odd if weights[name].shape != tensors[name].shape}
    if odd:
        raise VerificationError(
            f"{path} holds weights of another model: {', '.join(sorted(odd)[:3])}"
        )
    for name, tensor in weights.items():
        tensor.copy_(tensors[name])


def _allocate(trainer: TrainerState, stored: set[str]) -> None:
    """Make the optimizer allocate its state, by a step with zero gradients and learning rate 0."""
    labels = (name.partition("/") for name in stored)
    with_state = {
        label.rpartition(SEPARATOR)[0] for group, _, label in labels if group == OPTIMIZER
    }
    trainer.optimizer.state.clear()
    trainer.optimizer.zero_grad(set_to_none=True)
    # a parameter that never had a gradient, such as of a head that no loss reads, has no state
    for group in trainer.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            if name in with_state:
                parameter.grad = torch.zeros_like(parameter)
    trainer.optimizer_method.set_hyperparams(trainer.optimizer, trainer.config.optimizer, 0.0, 0)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad(set_to_none=True)


def _set_optimizer(trainer: TrainerState, tensors: Mapping[str, torch.Tensor]) -> None:
    names = [name for group in trainer.param_groups for name in group["names"]]
    numbers = {name: number for number, name in enumerate(names)}
    state: dict[int, Tensors] = {}
    for label, tensor in tensors.items():
        name, _, key = label.rpartition(SEPARATOR)
        state.setdefault(numbers[name], {})[key] = tensor
    groups = trainer.optimizer.state_dict()["param_groups"]
    trainer.optimizer.load_state_dict({"state": state, "param_groups": groups})
