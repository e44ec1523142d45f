"""What a trainer has to keep, as tensors, and how it is given back."""

from collections.abc import Mapping
from pathlib import Path

import torch

from zoo.errors import VerificationError
from zoo.io.untrusted import parsing
from zoo.training.optim.optimizers import set_hyperparams
from zoo.training.state.checkpoints import SHARDS, Tensors
from zoo.training.state.distributed import load_shards
from zoo.training.state.recovery import SavedCheckpoint
from zoo.training.step import TrainStep

SEPARATOR = ":"


def trainer_state_dict(trainer: TrainStep) -> dict[str, Tensors]:
    """Return file stem -> tensors by name: weights, optimizer, average, totals, memory."""
    average = trainer.average
    return {
        "weights": unique_state_dict(trainer.lesson.model),
        "optimizer": _optimizer(trainer),
        "ema_decay": {} if average is None else average.state_dict(),
        "totals": trainer.totals.values,
        "memory": _memory(trainer),
    }


def load_trainer_state_dict(
    trainer: TrainStep, groups: Mapping[str, Tensors], saved: SavedCheckpoint
) -> None:
    """Restore the state of a trainer that was just built.

    Args:
        trainer: the trainer.
        groups: file stem -> tensors of a checkpoint, see ``load_tensors``.
        saved: the checkpoint.

    Raises:
        VerificationError: the tensors are another model's.
    """
    where = saved.path
    if any(name.startswith(f"{SHARDS}/") for name in saved.meta.files):
        _allocate(trainer)
        kept = trainer_state_dict(trainer)
        with parsing(where / SHARDS, "a sharded checkpoint of this model"):
            load_shards(where / SHARDS, {name: kept[name] for name in kept.keys() - groups.keys()})
    else:
        load_unique_state_dict(trainer.lesson.model, groups.get("weights", {}), where)
        with parsing(where, "a checkpoint of this model"):
            _set_optimizer(trainer, groups.get("optimizer", {}))
            if trainer.average is not None:
                trainer.average.load_state_dict(groups["ema_decay"])
    device = trainer.ranks.device
    trainer.totals.values = {k: v.to(device) for k, v in groups.get("totals", {}).items()}
    _set_memory(trainer, groups.get("memory", {}))


def unique_state_dict(module: torch.nn.Module) -> Tensors:
    """Return a module's weights by name, tied ones once, and the buffers that are kept."""
    found: Tensors = {}
    seen = set()
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            found[name] = tensor.detach()
            seen.add(id(tensor))
    return found


def load_unique_state_dict(
    module: torch.nn.Module, tensors: Mapping[str, torch.Tensor], where: Path
) -> None:
    """Put weights into a module that was built for them.

    Raises:
        VerificationError: names or shapes are others.
    """
    own = unique_state_dict(module)
    odd = own.keys() ^ tensors.keys()
    odd |= {name for name in own.keys() - odd if own[name].shape != tensors[name].shape}
    if odd:
        raise VerificationError(
            f"{where} holds weights of another model: {', '.join(sorted(odd)[:3])}"
        )
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def _optimizer(trainer: TrainStep) -> Tensors:
    names = [name for group in trainer.groups for name in group["names"]]
    state = trainer.optimizer.state_dict()["state"]
    return {
        f"{name}{SEPARATOR}{key}": torch.as_tensor(value)
        for number, name in enumerate(names)
        for key, value in state.get(number, {}).items()
    }


def _allocate(trainer: TrainStep) -> None:
    """Let the optimizer make its state, by an update with gradients and a rate of zero."""
    for parameter in trainer.lesson.parameters():
        parameter.grad = torch.zeros_like(parameter)
    set_hyperparams(trainer.optimizer, trainer.settings.optimizer, 0.0, 0)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad(set_to_none=True)


def _set_optimizer(trainer: TrainStep, tensors: Mapping[str, torch.Tensor]) -> None:
    names = [name for group in trainer.groups for name in group["names"]]
    numbers = {name: number for number, name in enumerate(names)}
    state: dict[int, Tensors] = {}
    for label, tensor in tensors.items():
        name, _, key = label.rpartition(SEPARATOR)
        state.setdefault(numbers[name], {})[key] = tensor
    groups = trainer.optimizer.state_dict()["param_groups"]
    trainer.optimizer.load_state_dict({"state": state, "param_groups": groups})


def _memory(trainer: TrainStep) -> Tensors:
    """Put the rows of all micro-batches and processes together, in order."""
    names = trainer.recurrent_states[0] if trainer.recurrent_states else {}
    own = {name: torch.cat([memory[name] for memory in trainer.recurrent_states]) for name in names}
    return trainer.ranks.gather_rows(own)


def _set_memory(trainer: TrainStep, rows: Mapping[str, torch.Tensor]) -> None:
    """Give each micro-batch of this process its rows."""
    if not rows:
        return
    device = trainer.ranks.device
    trainer.recurrent_states = [
        {name: tensor[micro.start : micro.stop].to(device) for name, tensor in rows.items()}
        for micro in trainer.micro_batches
    ]
