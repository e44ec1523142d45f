"""DDP and FSDP2 in gloo processes: the trainer of the zoo and a plain loop.

    python -m benchmarks.distributed [FILE ...] [--processes 2] [--size 256] [--rounds 7]

Target: at least 0.9 of the steps per second of the plain loop, for both.

All sides train the same causal language model of four layers, from the same weights, on the same
batches, with fused AdamW and clipped gradients, and run alternately in the same processes. The
plain loops are what PyTorch's tutorials show: ``DistributedDataParallel``, and ``fully_shard`` of
each block and of the model. First, the losses of all sides are compared.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._common import alternate, machine, table, versions
from benchmarks._processes import (
    BATCHES,
    is_launched,
    launch,
    make_trainer,
    model_settings,
    train_one_step,
)
from zoo.training.distributed.context import DistContext
from zoo.training.distributed.parallelize import transformer_blocks
from zoo.training.trainer import Trainer

ROWS = 4  # rows per process and step
Side = Callable[[], float]  # Trains one step, and returns the loss.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--size", type=int, default=256, help="hidden size")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--steps", type=int, default=10, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smoke", action="store_true", help="a few steps of a narrow model")
    options = parser.parse_args()
    if options.smoke:
        options.size = 64
        options.steps = 2
        options.rounds = 1
    if not is_launched():
        launch("benchmarks.distributed", options.processes, options.threads)
        return
    with DistContext.opened("cpu", threads=options.threads) as dist:
        measure(options, dist)


def measure(options: argparse.Namespace, dist: DistContext) -> None:
    """Compare the losses, time all sides, and print a table."""
    rows = ROWS * dist.world_size
    sides: dict[str, Side] = {}
    for name, fsdp in (("DDP", False), ("FSDP2", True)):
        config = model_settings(options.files, options.size, rows, fsdp=fsdp)
        ours = make_trainer(config, dist)
        sides[f"zoo {name}"] = lambda trainer=ours: train_one_step(trainer)  # type: ignore[misc]
        # Without wrappers, since they are this side's part.
        plain = make_trainer(config_of_one_process(options, rows), one_process(dist))
        plain.train_dataloader = ours.train_dataloader
        sides[f"plain {name}"] = plain_loop(plain, dist, fsdp=fsdp)
    losses = {name: [step() for _ in range(BATCHES)] for name, step in sides.items()}
    *other_sides, reference = losses
    for name in other_sides:
        for loss, expected in zip(losses[name], losses[reference], strict=True):
            if not abs(loss - expected) <= 1e-4 * expected:  # NaN is a difference.
                sys.exit(f"losses differ: {name} {losses[name]}, {reference} {losses[reference]}")

    cpu_seconds: dict[str, list[float]] = {name: [] for name in sides}

    def train(name: str) -> None:
        start = time.process_time()
        for _ in range(options.steps):
            sides[name]()
        cpu_seconds[name].append(time.process_time() - start)

    contenders = {name: lambda name=name: train(name) for name in sides}
    timings = alternate(contenders, rounds=options.rounds)
    if not dist.is_main_process:
        return
    lines = []
    for name in sides:
        kind = name.partition(" ")[2]
        pairs = zip(timings[f"plain {kind}"].seconds, timings[name].seconds, strict=True)
        ratio = statistics.median(plain / side for plain, side in pairs)
        # Of the processor, which other programs do not change; the first round is the warm-up.
        pairs = zip(cpu_seconds[f"plain {kind}"][1:], cpu_seconds[name][1:], strict=True)
        cpu_ratio = statistics.median(plain / side for plain, side in pairs)
        milliseconds = 1000 * timings[name].median / options.steps
        lines.append([name, f"{milliseconds:.1f}", f"{ratio:.2f}", f"{cpu_ratio:.2f}"])
    print(f"{machine(options.threads)}; {versions('torch')}; {dist.world_size} processes\n")
    print(table(["", "ms per step", "speed to plain loop", "by CPU time"], lines))


def one_process(dist: DistContext) -> DistContext:
    """Return a context without other processes, for a model that is not wrapped."""
    return DistContext(0, 1, dist.device)


def config_of_one_process(options: argparse.Namespace, rows: int) -> Any:
    return model_settings(options.files, options.size, rows)


def plain_loop(trainer: Trainer, dist: DistContext, *, fsdp: bool) -> Side:
    """Return a step of a loop by hand with the model of a trainer, which is not used otherwise."""
    import torch
    from torch import distributed
    from torch.distributed.fsdp import fully_shard

    loss_module = trainer.loss_module
    config = trainer.config.optimizer
    wrapped: torch.nn.Module = loss_module
    if fsdp:
        for block in transformer_blocks(loss_module):
            fully_shard(block)
        fully_shard(loss_module)
    else:
        wrapped = torch.nn.parallel.DistributedDataParallel(loss_module)
    optimizer = torch.optim.AdamW(
        loss_module.parameters(),
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.eps,
        weight_decay=0.0,
        fused=True,
    )
    loss_module.train()
    (name,) = trainer.loss_weights
    steps = 0

    def step() -> float:
        nonlocal steps
        (batch,) = trainer.train_dataloader.batches(steps)
        loss = wrapped(batch.tensors).sums[name] / batch.counts[name]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(loss_module.parameters(), config.max_grad_norm or 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps += 1
        mean_loss = loss.detach().clone()
        distributed.all_reduce(mean_loss)
        return float(mean_loss) / dist.world_size

    return step


if __name__ == "__main__":
    main()
