"""Run by torchrun: trains every objective for a few steps on all processes, and writes losses.

torchrun --nproc-per-node 2 -m tests.training.ranks_program OUTPUT FAMILY:OBJECTIVE[:shard] ...
"""

import json
import sys
from pathlib import Path

import torch
from msgspec.structs import replace

from tests.training.cases import dry
from tests.training.runs import small
from zoo.training.feed import Feed
from zoo.training.job import corpus_rows, prepare
from zoo.training.lesson import Lesson
from zoo.training.loop import Trainer
from zoo.training.ranks import Ranks

STEPS, ROWS = 3, 4


def losses(name: str, ranks: Ranks) -> list[float]:
    """Train, and return the loss of each step."""
    family, objective, *shard = name.split(":")
    settings = dry(small(family, objective=objective))
    settings = replace(settings, shard=bool(shard) and ranks.count > 1)
    job = prepare(settings)
    torch.manual_seed(0)
    lesson = Lesson(job.objective, job.objective.learner(job.family, job.config))
    feed = Feed(
        job.objective,
        corpus_rows(job, "train", ROWS),
        seed=0,
        per_step=ROWS,
        per_micro=1,
        rank=ranks.rank,
        ranks=ranks.count,
    )
    trainer = Trainer(lesson, settings, ranks, feed.micros)
    found = []
    for step in range(STEPS):
        trainer.update(feed.make(step))
        found.append(trainer.totals.read(job.objective.terms)["loss"])
    feed.close()
    return found


def main() -> None:
    output, *names = sys.argv[1:]
    ranks = Ranks.join("cpu")
    found = {name: losses(name, ranks) for name in names}
    if ranks.first:
        Path(output).write_text(json.dumps(found), encoding="utf-8")
    ranks.leave()


if __name__ == "__main__":
    main()
