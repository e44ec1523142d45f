"""Benchmarks in several gloo processes of this machine, and the model that they train."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.training.config.schema import TrainConfig, pretrain_config
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.loss_module import LossModule
from zoo.training.setup import build_dataset, pretrain_setup
from zoo.training.trainer import Trainer

LENGTH = 128  # tokens per row
BATCHES = 8  # number of steps whose batches are made before anything is timed
NO_DROPOUT = {"dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0}


def launch(module: str, count: int, threads: int) -> None:
    """Run this command in several processes of one process group; a failure ends the benchmark."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    processes = []
    for rank in range(count):
        environment = {
            **os.environ,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(count),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "OMP_NUM_THREADS": str(threads),
        }
        argv = [sys.executable, "-m", module, *sys.argv[1:]]
        processes.append(subprocess.Popen(argv, env=environment))
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit(f"a process of the benchmark failed: exit codes {codes}")


def is_launched() -> bool:
    """Return whether this is a process that ``launch`` started."""
    return "RANK" in os.environ


def model_settings(paths: Sequence[Path], size: int, rows: int, **changes: Any) -> TrainConfig:
    """Return the settings of a causal language model.

    All rows are full, so that the mean over processes is the mean over tokens, and a plain loop
    has the same loss.

    Args:
        paths: text files to train on; none for the small corpus of the package.
        size: hidden size; the model has four layers.
        rows: rows of ``LENGTH`` tokens per step, over all processes.
        **changes: further settings.
    """
    heads = max(1, size // 64)
    config = {"num_layers": 4, "hidden_size": size, "num_heads": heads, **NO_DROPOUT}
    values = {
        "family": "gpt",
        "objective": "causal-lm",
        "config": config,
        "data": {"paths": [str(path) for path in paths]},
        "vocab_size": 4000,
        "seq_len": LENGTH,
        "global_batch_tokens": rows * LENGTH,
        "micro_batch_tokens": rows * LENGTH,
        "max_steps": 1_000_000,
        "optimizer": {"name": "adamw", "learning_rate": 1e-4, "weight_decay": 0.0},
        "lr_scheduler": {"name": "constant", "warmup_steps": 0, "min_lr_ratio": 0.0},
        **changes,
    }
    return pretrain_config(values, {})


class PreparedBatches(BatchLoader):
    """Batches that were made before, so that only the steps are timed."""

    def prepare(self) -> None:
        self.prepared = [self.make_batches(step) for step in range(BATCHES)]

    def batches(self, step: int) -> Any:
        return self.prepared[step % BATCHES]


def make_trainer(config: TrainConfig, dist: DistContext) -> Trainer:
    """Return a trainer with prepared batches; all have the same initial weights."""
    import torch

    setup = dist.main_process_first(lambda: pretrain_setup(config))
    rows = config.global_batch_size
    loader = PreparedBatches(
        setup.objective,
        build_dataset(setup, "train", rows),
        seed=0,
        global_batch_size=rows,
        micro_batch_size=config.micro_batch_size(LENGTH),
        rank=dist.rank,
        world_size=dist.world_size,
    )
    loader.prepare()
    torch.manual_seed(0)
    model = setup.objective.model(setup.family, setup.model_config)
    return Trainer(LossModule(setup.objective, model.to(dist.device)), config, dist, loader)


def train_one_step(trainer: Trainer) -> float:
    """Train as ``Trainer.train`` does between two records of the log; return the loss."""
    trainer.dist.begin_step(trainer.step + 1)
    trainer.train_step(trainer.train_dataloader.batches(trainer.step))
    trainer.dist.any(trainer.stop.received)
    means = trainer.train_metrics.compute_and_reset(trainer.loss_weights)
    loss: float = means["loss"]
    return loss
