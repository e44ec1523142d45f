"""Checks that a configuration resumes bit for bit, and that gradient accumulation is exact."""

import contextlib
import math
import os
import random
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

    steps: int  # Number of steps of the run.
    kills: tuple[int, ...]  # Number of lines of the log at each kill.
    tensors: int  # Number of tensors of the last checkpoint that were compared.
    log_bytes: int  # Length of both logs.


def check_resume(values: Mapping[str, Any], *, kills: int = 2, device: str | None) -> ResumeCheck:
    """Compare an uninterrupted run with one that is killed and resumed several times."""
    with scratch_directory() as scratch:
        file = scratch / "settings.yaml"
        file.write_text(dump_yaml({**values, "keep_optimizer": True}), encoding="utf-8")
        uninterrupted = scratch / "whole"
        interrupted = scratch / "run"

        def arguments() -> list[str]:
            """Return the arguments that start the run, or resume it if it has begun."""
            if interrupted.exists():
                run_arguments = ["--resume", str(interrupted)]
            else:
                run_arguments = [str(file), "-o", str(interrupted)]
            if device:
                run_arguments += ["--device", device]
            return run_arguments

        start_time = time.monotonic()
        _finish(arguments(), scratch)
        duration = time.monotonic() - start_time
        # Both runs have the same path, which their manifests record.
        interrupted.rename(uninterrupted)
        lines_at_kills = []
        for _ in range(kills):
            lines_at_kills.append(_kill(arguments(), interrupted, within=duration))
        _finish(arguments(), scratch)
        tensors = _compare(uninterrupted, interrupted)
        log_bytes = (uninterrupted / METRICS_FILE).stat().st_size
    return ResumeCheck(int(values["max_steps"]), tuple(lines_at_kills), tensors, log_bytes)


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "zoo", "pretrain", *arguments]


def _finish(arguments: Sequence[str], scratch: Path) -> None:
    """Run a command to its end.

    Args:
        scratch: temporary directory of both runs. If its disk is full, ``scratch_directory`` says
            so: the command's own hint, to resume the run, is of no use for a temporary one.
    """
    process = subprocess.run(_command(arguments), capture_output=True, text=True, check=False)
    if not process.returncode:
        return
    messages = process.stderr.strip().splitlines()
    message = "the run failed"
    if messages:
        message = messages[-1].removeprefix("error: ")
        for code in NO_ROOM:
            reason = os.strerror(code)
            if reason in messages[-1] and str(scratch.parent) in messages[-1]:
                raise OSError(code, reason, str(scratch))
    error = ZooError(message)
    error.exit_code = process.returncode  # type: ignore[misc]
    raise error


def _kill(arguments: Sequence[str], run: Path, *, within: float) -> int:
    """Start or resume a run, kill it some time after its next step, and count the log's lines."""
    lines_at_start = _count_lines(run)
    process = subprocess.Popen(
        _command(arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and _count_lines(run) <= lines_at_start:
        time.sleep(0.01)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(random.uniform(0, within / 10))
    process.kill()
    process.wait()
    return _count_lines(run)


def _count_lines(run: Path) -> int:
    try:
        return (run / METRICS_FILE).read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def _compare(uninterrupted: Path, resumed: Path) -> int:
    """Compare all files of two runs, and count the tensors of their last checkpoints."""
    from zoo.training.state.progress import list_checkpoints
    from zoo.training.state.verify import differing_files

    _compare_logs(uninterrupted, resumed)
    step, checkpoint = list(list_checkpoints(uninterrupted).items())[-1]
    resumed_step, resumed_checkpoint = list(list_checkpoints(resumed).items())[-1]
    if step != resumed_step:
        raise VerificationError(f"the runs ended at steps {step} and {resumed_step}")
    tensors = _compare_tensors(checkpoint, resumed_checkpoint)
    differing_names = differing_files(uninterrupted, resumed)
    if differing_names:
        raise VerificationError(f"{', '.join(differing_names)} differ after resuming")
    return tensors


def _compare_logs(uninterrupted: Path, resumed: Path) -> None:
    lines = (uninterrupted / METRICS_FILE).read_bytes().splitlines()
    resumed_lines = (resumed / METRICS_FILE).read_bytes().splitlines()
    pairs = zip(lines, resumed_lines, strict=False)
    for number, (line, resumed_line) in enumerate(pairs, 1):
        if line != resumed_line:
            raise VerificationError(
                f"the logs differ in line {number}: {line.decode()} and {resumed_line.decode()}"
            )
    if len(lines) != len(resumed_lines):
        raise VerificationError("the logs are of different lengths")


def _compare_tensors(checkpoint: Path, resumed_checkpoint: Path) -> int:
    """Compare the tensors of two checkpoints, and return their number."""
    from zoo.conversion.checks import bitwise_equal
    from zoo.io.tensors.safetensors import SafetensorsReader

    count = 0
    for path in sorted(checkpoint.rglob("*.safetensors")):
        resumed_path = resumed_checkpoint / path.relative_to(checkpoint)
        with (
            SafetensorsReader([path]) as reader,
            SafetensorsReader([resumed_path]) as resumed_reader,
        ):
            for name in reader.tensors:
                if not bitwise_equal(reader.read(name), resumed_reader.read(name)):
                    raise VerificationError(f"{path.name}: {name} differs after resuming")
                count += 1
    return count


@dataclass(frozen=True)
class AccumulationCheck:
    """Result of ``check_grad_accumulation``."""

    rows: int  # Number of rows of the batch.
    # Rows per micro-batch -> largest difference of a gradient, relative to the largest value of the
    # same parameter's gradient.
    max_differences: dict[int, float]
    worst_parameter: str  # Parameter with the largest difference.


TOLERANCE = 1e-6


def check_grad_accumulation(config: TrainConfig, *, offline: bool = False) -> AccumulationCheck:
    """Compare the gradients of one step's batch, as a whole and split into micro-batches.

    With a sequence-length warm-up, a batch of its shorter rows is also compared. Gradients are
    computed in float64 and without dropout, so that rounding and randomness hide nothing.
    """
    from zoo.training.setup import pretrain_setup

    setup = pretrain_setup(config, offline=offline)
    objectives = [setup.objective]
    if setup.warmup_objective is not None:
        objectives.insert(0, setup.warmup_objective)
    max_differences: dict[int, float] = {}
    worst_parameter = ""
    max_difference = 0.0
    for objective in objectives:
        rows = config.batch_size(objective.length)
        batch_gradients = _gradients(setup, objective, rows)
        default_size = min(rows, config.micro_batch_size(objective.length))
        for size in sorted({1, max(1, rows // 2), max(1, rows // 3), default_size} - {rows}):
            gradients = _gradients(setup, objective, size)
            differences = {}
            for name, gradient in batch_gradients.items():
                differences[name] = _distance(gradient, gradients[name])
            name = max(differences, key=differences.__getitem__)
            max_differences[size] = max(differences[name], max_differences.get(size, 0.0))
            if differences[name] > max_difference:
                worst_parameter = name
                max_difference = differences[name]
    if not max_difference <= TOLERANCE:
        raise VerificationError(
            f"the gradient of {worst_parameter} changes by {max_difference:.1e} when the batch is "
            "split",
            "the objective's sums and counts do not go together",
        )
    return AccumulationCheck(
        config.global_batch_size, dict(sorted(max_differences.items())), worst_parameter
    )


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
        name: parameter.grad.to_dense()
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
    """Return the largest absolute difference, relative to the largest value of the first gradient.

    It is infinite for NaN, since ``max`` may pass over a NaN.
    """
    largest = float(first.abs().max())
    difference = float((first - second).abs().max())
    if not math.isfinite(difference):
        return math.inf
    return difference / (largest or 1.0)
