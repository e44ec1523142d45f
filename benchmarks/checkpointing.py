"""Checkpoints of a run: how long steps wait for them, written in a thread and before the next step.

    python -m benchmarks.checkpointing [FILE ...] [--processes 2] [--size 384] [--every 20]

Target: with ``async_save``, steps wait for at most 2 % of the time.

Trains one causal language model of four layers for ``--steps`` steps and saves every ``--every``
steps: not at all, in the background, and before the next step, alternately. *waiting* is the time
between the end of a step and the begin of the next one that a save takes, the check of the weights
included. A thread that writes also takes time of the processor, which slows the steps down where
all cores compute: the last column has it, for all threads. With several processes, the model is
sharded.
"""

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks._common import machine, table, versions
from benchmarks._processes import (
    is_launched,
    launch,
    make_trainer,
    model_settings,
    train_one_step,
)
from zoo.training.distributed.context import DistContext
from zoo.training.state.checkpoint_writer import CheckpointWriter
from zoo.training.state.checkpoints import CheckpointMeta
from zoo.training.state.progress import list_checkpoints
from zoo.training.state.state_dict import trainer_state_dict
from zoo.training.trainer import Trainer

ROWS = 4  # rows per process and step
SIDES = ("none", "in background", "before next step")


@dataclass
class Period:
    """Seconds of a number of steps.

    Attributes:
        steps: seconds that the steps take.
        waiting: seconds that the steps wait for saves.
        cpu: CPU time of all threads of the process.
    """

    steps: float
    waiting: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--size", type=int, default=384, help="hidden size")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--steps", type=int, default=60, help="steps of a round")
    parser.add_argument("--every", type=int, default=20, help="steps between saves")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="folder of the checkpoints")
    parser.add_argument("--smoke", action="store_true", help="a few steps of a narrow model")
    options = parser.parse_args()
    if options.smoke:
        options.size = 64
        options.steps = 2
        options.every = 1
        options.rounds = 1
    if not is_launched():
        launch("benchmarks.checkpointing", options.processes, options.threads)
        return
    with DistContext.opened("cpu", threads=options.threads) as dist:
        measure(options, dist)


def measure(options: argparse.Namespace, dist: DistContext) -> None:
    """Time all sides alternately, and print a table."""
    sharded = dist.world_size > 1
    config = model_settings(options.files, options.size, ROWS * dist.world_size, fsdp=sharded)
    trainer = make_trainer(config, dist)
    train_one_step(trainer)  # The optimizer has its state then.
    size = 0
    periods: dict[str, list[Period]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(dir=options.output) as folder:
        run = Path(dist.broadcast(folder))
        writer = CheckpointWriter(run, dist)
        # The first save imports libraries, and allocates the memory of copies.
        for in_background in (True, False):
            save(trainer, writer, in_background=in_background)
        writer.wait()
        for turn in range(options.rounds):
            for side in SIDES[turn % 3 :] + SIDES[: turn % 3]:
                periods[side].append(train(trainer, writer, side, options))
            print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
        writer.close()
        dist.barrier()
        if dist.is_main_process:
            path = max(list_checkpoints(run).values())
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        dist.barrier()
    if dist.is_main_process:
        print(f"{machine(options.threads)}; {versions('torch')}; {dist.world_size} processes")
        print(f"a checkpoint has {size / 1e6:.0f} MB, and is saved every {options.every} steps\n")
        print(results(periods, options))


def train(
    trainer: Trainer, writer: CheckpointWriter, side: str, options: argparse.Namespace
) -> Period:
    """Train a number of steps, and save in the way of a side."""
    period = Period(0.0, 0.0, 0.0)
    cpu_start = time.process_time()
    for number in range(1, options.steps + 1):
        start = time.perf_counter()
        train_one_step(trainer)
        end = time.perf_counter()
        period.steps += end - start
        # The last save of a side would be waited for outside of its time.
        if side != "none" and number % options.every == 0 and number < options.steps:
            save(trainer, writer, in_background=side == "in background")
            period.waiting += time.perf_counter() - end
    writer.wait()  # The CPU time of a thread that still writes belongs to this side.
    period.cpu = time.process_time() - cpu_start
    return period


def save(trainer: Trainer, writer: CheckpointWriter, *, in_background: bool) -> None:
    """Save as a run does."""
    trainer.check_weights()
    meta = CheckpointMeta(step=trainer.step)
    state = trainer_state_dict(trainer)
    writer.save(meta, state, None, keep=1, in_background=in_background)


def results(periods: dict[str, list[Period]], options: argparse.Namespace) -> str:
    """Return a table of the median times."""
    lines = []
    cpu_without_saves = statistics.median(period.cpu for period in periods["none"])
    saves = (options.steps - 1) // options.every
    for side in SIDES:
        steps = statistics.median(period.steps for period in periods[side])
        waiting = statistics.median(period.waiting for period in periods[side])
        cpu = statistics.median(period.cpu for period in periods[side])
        lines.append(
            [
                side,
                f"{1000 * steps / options.steps:.1f}",
                f"{1000 * waiting / saves:.1f}" if side != "none" else "-",
                f"{waiting / (steps + waiting):.2%}",
                f"{cpu / cpu_without_saves:.3f}",
            ]
        )
    header = ["saves", "ms per step", "ms waiting per save", "waiting", "CPU time, none = 1"]
    return table(header, lines)


if __name__ == "__main__":
    main()
