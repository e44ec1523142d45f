"""Program for torchrun that trains objectives for a few steps and writes the losses.

torchrun --nproc-per-node 2 -m tests.training.distributed_program OUTPUT FAMILY:OBJECTIVE[:fsdp] ...
"""

import json
import sys
from pathlib import Path

import torch
from msgspec.structs import replace

from tests.training.cases import dry
from tests.training.runs import small
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.loss_module import LossModule
from zoo.training.setup import build_dataset, build_setup
from zoo.training.trainer import Trainer

STEPS, ROWS = 3, 4


def losses(name: str, ranks: DistContext) -> list[float]:
    """Train, and return the loss of each step."""
    family, objective, *shard = name.split(":")
    settings = dry(small(family, objective=objective))
    settings = replace(settings, fsdp=bool(shard) and ranks.world_size > 1)
    job = build_setup(settings)
    torch.manual_seed(0)
    lesson = LossModule(job.objective, job.objective.model(job.family, job.model_config))
    feed = BatchLoader(
        job.objective,
        build_dataset(job, "train", ROWS),
        seed=0,
        global_batch_size=ROWS,
        micro_batch_size=1,
        rank=ranks.rank,
        world_size=ranks.world_size,
    )
    trainer = Trainer(lesson, settings, ranks, feed)
    found = []
    for step in range(STEPS):
        trainer.train_step(feed.make_batches(step))
        found.append(trainer.train_metrics.compute_and_reset(job.objective.loss_weights)["loss"])
    feed.close()
    return found


def main() -> None:
    output, *names = sys.argv[1:]
    ranks = DistContext.initialize("cpu")
    found = {name: losses(name, ranks) for name in names}
    if ranks.is_main_process:
        Path(output).write_text(json.dumps(found), encoding="utf-8")
    ranks.destroy()


if __name__ == "__main__":
    main()
