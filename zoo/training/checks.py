"""Checks that a configuration resumes bit for bit, and that gradient accumulation is exact."""

import contextlib
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError, ZooError
from zoo.io.output.full_disks import NO_ROOM
from zoo.io.scratch import scratch_directory
from zoo.io.yaml import dump_yaml
from zoo.training.config.schema import TrainConfig
from zoo.training.logging.jsonl import METRICS_FILE

if TYPE_CHECKING:
    from zoo.objectives.base import Objective
    from zoo.training.setup import PretrainSetup
    from zoo.training.trainer import Trainer


@dataclass(frozen=True)
class ResumeCheck:
    """Result of ``check_resume``."""

    steps: int  # number of steps of the run
    kills: tuple[int, ...]  # number of lines of the log at each kill
    tensors: int  # number of tensors of the last checkpoint that were compared
    log_bytes: int  # length of both logs


def check_resume(values: Mapping[str, Any], *, kills: int = 2, device: str | None) -> ResumeCheck:
    """Compare an uninterrupted run with one that is killed and resumed several times."""
    with scratch_directory() as scratch:
        file = scratch / "settings.yaml"
        file.write_text(dump_yaml({**values, "keep_optimizer": True}), encoding="utf-8")
        more = ["--device", device] if device else []
        whole, broken = scratch / "whole", scratch / "run"
        started = time.monotonic()
        _finish([str(file), "-o", str(broken), *more], scratch)
        lasted = time.monotonic() - started
        # Both runs have the same path, which their manifests record.
        broken.rename(whole)
        seen = []
        for _ in range(kills):
            known = ["--resume", str(broken)] if broken.exists() else [str(file), "-o", str(broken)]
            seen.append(_kill([*known, *more], broken, within=lasted))
        known = ["--resume", str(broken)] if broken.exists() else [str(file), "-o", str(broken)]
        _finish([*known, *more], scratch)
        tensors = _compare(whole, broken)
        size = (whole / METRICS_FILE).stat().st_size
    return ResumeCheck(int(values["max_steps"]), tuple(seen), tensors, size)


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "zoo", "pretrain", *arguments]


def _finish(arguments: Sequence[str], scratch: Path) -> None:
    """Run a command to its end.

    Args:
        scratch: temporary directory of both runs. If its disk is full, ``scratch_directory`` says
            so: the command's own hint, to resume the run, is of no use for a temporary one.
    """
    done = subprocess.run(_command(arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        messages = done.stderr.strip().splitlines()
        for code in NO_ROOM:
            words = os.strerror(code)
            if messages and words in messages[-1] and str(scratch.parent) in messages[-1]:
                raise OSError(code, words, str(scratch))
        error = ZooError(messages[-1].removeprefix("error: ") if messages else "the run failed")
        error.exit_code = done.returncode  # type: ignore[misc]
        raise error


def _kill(arguments: Sequence[str], run: Path, *, within: float) -> int:
    """Start or resume a run, kill it some time after its next step, and count the log's lines."""
    before = _lines(run)
    process = subprocess.Popen(
        _command(arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and _lines(run) <= before:
        time.sleep(0.01)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(random.uniform(0, within / 10))
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return _lines(run)


def _lines(run: Path) -> int:
    try:
        return (run / METRICS_FILE).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def _compare(whole: Path, broken: Path) -> int:
    """Compare all files of two runs, and count the tensors of their last checkpoints."""
    from zoo.conversion.checks.round_trip import bitwise_equal
    from zoo.io.tensors.safetensors import SafetensorsReader
    from zoo.training.state.checkpoints import list_checkpoints
    from zoo.training.state.equal_files import differing_files

    lines = zip(_content(whole), _content(broken), strict=False)
    for number, (first, second) in enumerate(lines, 1):
        if first != second:
            raise VerificationError(
                f"the logs differ in line {number}: {first.decode()} and {second.decode()}"
            )
    if len(_content(whole)) != len(_content(broken)):
        raise VerificationError("the logs are of different lengths")
    (step, one_), (other_step, other_) = (
        list(list_checkpoints(run).items())[-1] for run in (whole, broken)
    )
    if step != other_step:
        raise VerificationError(f"the runs ended at steps {step} and {other_step}")
    compared = 0
    for path in sorted(one_.rglob("*.safetensors")):
        twin = other_ / path.relative_to(one_)
        with SafetensorsReader([path]) as a, SafetensorsReader([twin]) as b:
            for name in a.tensors:
                if not bitwise_equal(a.read(name), b.read(name)):
                    raise VerificationError(f"{path.name}: {name} differs after resuming")
                compared += 1
    if differing := differing_files(whole, broken):
        raise VerificationError(f"{', '.join(differing)} differ after resuming")
    return compared


def _content(run: Path) -> list[bytes]:
    return (run / METRICS_FILE).read_bytes().splitlines()


@dataclass(frozen=True)
class AccumulationCheck:
    """Result of ``check_grad_accumulation``."""

    rows: int  # number of rows of the batch
    # rows per micro-batch -> largest difference of a gradient, relative to the largest value of the
    # same parameter's gradient
    max_differences: dict[int, float]
    worst_parameter: str  # parameter with the largest difference


TOLERANCE = 1e-6


def check_grad_accumulation(config: TrainConfig, *, offline: bool = False) -> AccumulationCheck:
    """Compare the gradients of one step's batch, whole and split into micro-batches."""
    # With a sequence-length warm-up, a batch of its shorter rows is also compared. Gradients are
    # computed in float64 and without dropout, so that rounding and randomness hide nothing.
    from zoo.training.setup import pretrain_setup

    setup = pretrain_setup(config, offline=offline)
    splits, worst = dict[int, float](), ("", 0.0)
    for objective in filter(None, (setup.warmup_objective, setup.objective)):
        rows = config.batch_size(objective.length)
        whole = _gradients(setup, objective, rows)
        default = min(rows, config.micro_batch_size(objective.length))
        for size in sorted({1, max(1, rows // 2), max(1, rows // 3), default} - {rows}):
            part = _gradients(setup, objective, size)
            far = {name: _distance(whole[name], part[name]) for name in whole}
            name = max(far, key=far.__getitem__)
            splits[size] = max(far[name], splits.get(size, 0.0))
            worst = max(worst, (name, far[name]), key=lambda pair: pair[1])
    if not worst[1] <= TOLERANCE:
        raise VerificationError(
            f"the gradient of {worst[0]} changes by {worst[1]:.1e} when the batch is split",
            "the objective's sums and counts do not go together",
        )
    return AccumulationCheck(config.global_batch_size, dict(sorted(splits.items())), worst[0])


def _gradients(setup: "PretrainSetup", objective: "Objective", rows_at_once: int) -> dict[str, Any]:
    """Compute the gradients of the first batch of an objective, by parameter."""
    from zoo.training.build import build_model

    model = build_model(setup).module
    if setup.init is not None:
        setup.init.load_weights(setup.objective, model)
    trainer = _trainer(setup, objective, model.double(), rows_at_once)
    trainer.loss_module.eval()
    trainer.forward_backward(trainer.train_dataloader.make_batches(0))
    trainer.train_dataloader.close()
    return {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def _trainer(
    setup: "PretrainSetup", objective: "Objective", model: Any, rows_at_once: int
) -> "Trainer":
    import torch

    from zoo.training.dataloader import BatchLoader
    from zoo.training.distributed.context import DistContext
    from zoo.training.loss_module import LossModule
    from zoo.training.setup import build_dataset
    from zoo.training.trainer import Trainer

    rows = setup.config.batch_size(objective.length)
    loader = BatchLoader(
        objective,
        build_dataset(setup, "train", rows, warmup=objective is setup.warmup_objective),
        seed=setup.config.seed,
        global_batch_size=rows,
        micro_batch_size=rows_at_once,
    )
    context = DistContext(0, 1, torch.device("cpu"))
    return Trainer(LossModule(objective, model), setup.config, context, loader)


def _distance(first: Any, second: Any) -> float:
    # largest absolute difference, relative to the largest value of the first gradient; infinite for
    # NaN, since `max` may pass over a NaN
    largest, difference = float(first.abs().max()), float((first - second).abs().max())
    return difference / (largest or 1.0) if math.isfinite(difference) else math.inf
