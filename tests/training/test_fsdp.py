"""Optimizers with parameters sharded over two processes, compared with one process."""

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from tests import warm
from tests.disks import small_disk
from zoo.families.recipe import OptimizerConfig
from zoo.training.optim.ema import EMA
from zoo.training.optim.optimizers import clip_grad_norm, optimizer_method
from zoo.training.optim.param_groups import parameter_groups
from zoo.training.state.checkpoints import save_shards

__all__ = ["small_disk"]
NAMES = ("adamw", "adafactor", "lamb", "adagrad")


def trained(name: Any, sharded: bool) -> list[Tensor]:
    """Return weights, their moving average, and the last gradient norm after a few updates."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3, bias=False))
    if sharded:
        fully_shard(model)
    decay = 0.0 if name == "adagrad" else 0.1
    config = OptimizerConfig(name=name, learning_rate=0.1, weight_decay=decay, max_grad_norm=0.5)
    optimizer = optimizer_method(config).make(parameter_groups(model, config), config)
    average = EMA(model, 0.5)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()  # equal on both ranks
        norm = clip_grad_norm(model.parameters(), config.max_grad_norm)
        optimizer_method(config).set_hyperparams(optimizer, config, 0.1, step)
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
        average.update(model)
    return [whole(t) for t in (*model.parameters(), *average.tensors.values(), norm)]


def whole(tensor: Any) -> Tensor:
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach()


def main(arguments: Sequence[str]) -> None:
    """Write the results of one of two processes to a directory."""
    distributed.init_process_group("gloo")
    results = {name: trained(name, sharded=True) for name in NAMES}
    if distributed.get_rank() == 0:
        torch.save(results, Path(*arguments, "found.pt"))
    distributed.barrier()
    distributed.destroy_process_group()


def test_two_processes_update_as_one_does(tmp_path: Path) -> None:
    done = warm.in_processes(2, tmp_path, module=__name__)
    assert done.returncode == 0, done.stderr
    actual = torch.load(tmp_path / "found.pt")
    for name in NAMES:
        for ours, alone in zip(actual[name], trained(name, sharded=False), strict=True):
            torch.testing.assert_close(ours, alone, rtol=1e-5, atol=1e-6)


def test_a_full_disk_is_an_error_of_the_disk(small_disk: Path) -> None:
    """It is not wrapped in torch's error about a failed process, which has no handler."""
    with pytest.raises(OSError) as caught:
        save_shards(small_disk / "shards", {"weights": {"a": torch.zeros(1 << 20)}})
    assert caught.value.errno == errno.ENOSPC
