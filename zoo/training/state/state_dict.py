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
from zoo.training.distributed.parallelize import shard_like
from zoo.training.logging.aggregate import MetricSums
from zoo.training.loss_module import LossModule
from zoo.training.optim.base import OptimizerMethod
from zoo.training.optim.ema import EMA
from zoo.training.state.checkpoints import (
    OPTIMIZER,
    OPTIMIZER_SHARDS,
    SHARDS,
    Tensors,
    is_sharded,
    load_shards,
    shard_names,
)
from zoo.training.state.recovery import SavedCheckpoint

SEPARATOR = ":"
STREAM = "stream"  # The stem of the file with the place in a stream.


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
    """Return file stem -> tensors by name.

    These are weights, optimizer, EMA, metrics, recurrent states, and the place in a stream.
    """
    averaged_weights: Tensors = {}
    if trainer.ema is not None:
        averaged_weights = trainer.ema.state_dict()
    return {
        "weights": saved_state_dict(trainer.loss_module.model, trainer.config),
        OPTIMIZER: _optimizer_state(trainer),
        "ema_decay": averaged_weights,
        "totals": trainer.train_metrics.values,
        "memory": trainer.dist.gather_rows(_recurrent_rows(trainer)),
        STREAM: trainer.train_dataloader.state_dict(trainer.step, trainer.dist),
    }


def _parameter_names(trainer: TrainerState) -> list[str]:
    """Return the names of the optimizer's parameters, in the order in which it numbers them."""
    names: list[str] = []
    for group in trainer.param_groups:
        names.extend(group["names"])
    return names


def _optimizer_state(trainer: TrainerState) -> Tensors:
    """Return the optimizer's state by ``parameter:key``."""
    state = trainer.optimizer.state_dict()["state"]
    tensors: Tensors = {}
    for number, name in enumerate(_parameter_names(trainer)):
        for key, value in state.get(number, {}).items():
            tensors[f"{name}{SEPARATOR}{key}"] = torch.as_tensor(value)
    return tensors


def _recurrent_rows(trainer: TrainerState) -> Tensors:
    """Return the recurrent states of this process's micro-batches, concatenated in row order."""
    if not trainer.recurrent_states:
        return {}
    rows: Tensors = {}
    for name in trainer.recurrent_states[0]:
        rows[name] = torch.cat([states[name] for states in trainer.recurrent_states])
    return rows


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
                trainer.ema.load_state_dict(_shard_averages(groups["ema_decay"], trainer.ema))
    device = trainer.dist.device
    trainer.step = saved.meta.step
    trainer.tokens = saved.meta.tokens
    trainer.best = saved.meta.best
    trainer.optimizer_began = saved.meta.optimizer_began
    totals = groups.get("totals", {})
    trainer.train_metrics.values = {name: pair.to(device) for name, pair in totals.items()}
    trainer.train_dataloader.load_state_dict(trainer.step, groups.get(STREAM, {}))
    # The checkpoint has the recurrent states of all rows of a step; this process takes its own.
    global_rows = groups.get("memory", {})
    if global_rows:
        trainer.recurrent_states = []
        for micro in trainer.train_dataloader.micro_batches:
            states: Tensors = {}
            for name, tensor in global_rows.items():
                states[name] = tensor[micro.start : micro.stop].to(device)
            trainer.recurrent_states.append(states)


def _load_shards(trainer: TrainerState, groups: Mapping[str, Tensors], path: Path) -> None:
    """Load the sharded groups of a checkpoint, those that are not in ``groups``."""
    labels_by_folder: dict[Path, set[str]] = {}
    for folder in (path / SHARDS, path / OPTIMIZER_SHARDS):
        if folder.is_dir():
            labels_by_folder[folder] = shard_names(folder)
    _allocate(trainer, set().union(*labels_by_folder.values()))
    state = trainer_state_dict(trainer)
    sharded_groups = {group: state[group] for group in state.keys() - groups.keys()}
    for folder, labels in labels_by_folder.items():
        load_shards(folder, _tensors_of_labels(sharded_groups, labels))
    expected_labels: set[str] = set()
    for group, tensors in sharded_groups.items():
        expected_labels.update(f"{group}/{name}" for name in tensors)
    missing_labels = expected_labels.difference(*labels_by_folder.values())
    if missing_labels:
        raise KeyError(min(missing_labels))


def _tensors_of_labels(groups: Mapping[str, Tensors], labels: set[str]) -> dict[str, Tensors]:
    """Return the tensors whose labels ``group/name`` are listed, without empty groups."""
    selection: dict[str, Tensors] = {}
    for group, tensors in groups.items():
        for name, tensor in tensors.items():
            if f"{group}/{name}" in labels:
                selection.setdefault(group, {})[name] = tensor
    return selection


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
    """Return the tensors of a model that a run saves.

    With an adapter, these are the trained tensors. All others are the base model's.
    """
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
    mismatches = weights.keys() ^ tensors.keys()
    for name in weights.keys() & tensors.keys():
        if weights[name].shape != tensors[name].shape:
            mismatches.add(name)
    if mismatches:
        raise VerificationError(
            f"{path} holds weights of another model: {', '.join(sorted(mismatches)[:3])}"
        )
    _copy_full_tensors(tensors, weights)


def _copy_full_tensors(
    tensors: Mapping[str, torch.Tensor], targets: Mapping[str, torch.Tensor]
) -> None:
    """Copy full tensors into those of a run, which may be sharded, by name."""
    for name, target in targets.items():
        target.copy_(shard_like(tensors[name], target))


def _shard_averages(tensors: Tensors, ema: EMA) -> Tensors:
    """Return the averages of a checkpoint, sharded as those of a run are."""
    averages = ema.state_dict()
    sharded_tensors: Tensors = {}
    for name, tensor in tensors.items():
        sharded_tensors[name] = shard_like(tensor, averages.get(name, tensor))
    return sharded_tensors


def _allocate(trainer: TrainerState, labels: set[str]) -> None:
    """Make the optimizer allocate its state, by a step with zero gradients and learning rate 0.

    Args:
        labels: names ``group/name`` of the tensors of the checkpoint.
    """
    parameters_with_state = set()
    for label in labels:
        group_name, _, key = label.partition("/")
        if group_name == OPTIMIZER:
            parameters_with_state.add(key.rpartition(SEPARATOR)[0])
    trainer.optimizer.state.clear()
    trainer.optimizer.zero_grad(set_to_none=True)
    # A parameter that never had a gradient has no state, such as a head that no loss reads.
    for group in trainer.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            if name in parameters_with_state:
                parameter.grad = torch.zeros_like(parameter)
    trainer.optimizer_method.set_hyperparams(trainer.optimizer, trainer.config.optimizer, 0.0, 0)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad(set_to_none=True)


def _set_optimizer(trainer: TrainerState, tensors: Mapping[str, torch.Tensor]) -> None:
    """Load the optimizer's state of a checkpoint with full tensors."""
    if is_sharded(trainer.loss_module.state_dict()):
        # The state of sharded weights is made by the optimizer, as the checkpoint has none.
        _allocate(trainer, {f"{OPTIMIZER}/{label}" for label in tensors})
        _copy_full_tensors(tensors, _optimizer_state(trainer))
        return
    numbers = {name: number for number, name in enumerate(_parameter_names(trainer))}
    state: dict[int, Tensors] = {}
    for label, tensor in tensors.items():
        name, _, key = label.rpartition(SEPARATOR)
        state.setdefault(numbers[name], {})[key] = tensor
    groups = trainer.optimizer.state_dict()["param_groups"]
    trainer.optimizer.load_state_dict({"state": state, "param_groups": groups})
