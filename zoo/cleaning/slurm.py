"""Tasks of a stage as an array of jobs of Slurm."""

import getpass
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from datatrove.executor.slurm import SlurmPipelineExecutor
from datatrove.utils.logging import logger as datatrove_logger

from zoo.cleaning.deduplicate import CleaningStage
from zoo.cleaning.executors import (
    Advance,
    Executor,
    ReportedSteps,
    forget_errors,
    incomplete_tasks,
    require_complete,
)
from zoo.errors import UsageError
from zoo.overrides import override

POLL_SECONDS = 2.0
UNKNOWN_JOB = "Invalid job id"  # what squeue says of a job that ended some time ago
ENVIRONMENTS = ("env_command", "condaenv", "venv_path")


class _Jobs(SlurmPipelineExecutor):  # type: ignore[misc]  # datatrove has no types
    """The array of a stage, without the job that adds up datatrove's statistics."""

    @override
    def launch_merge_stats(self) -> None:
        """Nobody reads them; the job would wait for ever for tasks that have failed."""


class SlurmExecutor(Executor):
    """An array of jobs of Slurm for each stage. Their jobs end with this process.

    Args:
        arguments: arguments of datatrove's ``SlurmPipelineExecutor``, such as ``time`` and
            ``partition``.
    """

    name: ClassVar[str] = "slurm"

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.arguments = dict(arguments)

    @override
    def run(self, stage: CleaningStage, folder: Path, advance: Advance) -> None:
        if "SLURM_ARRAY_TASK_ID" in os.environ:
            raise UsageError(
                "--executor slurm starts arrays of jobs, and this is a task of one",
                "run it at a login node, or in a job of its own",
            )
        if shutil.which("sbatch") is None:
            raise UsageError("--executor slurm: there is no sbatch", "run it where sbatch works")
        datatrove_logger.remove()  # It would write its messages to standard error.
        arguments = dict(self.arguments)
        if not any(name in arguments for name in ENVIRONMENTS):
            # Tasks find the programs of this environment.
            arguments["env_command"] = f"export PATH={Path(sys.executable).parent}:$PATH"
        # Jobs are cancelled by this name.
        job_name = f"zoo-{stage.name}-{os.getpid()}-{time.time_ns() % 10**6}"
        try:
            executor = _Jobs(
                pipeline=[ReportedSteps(stage, folder)],
                tasks=stage.tasks,
                logging_dir=str(folder),
                job_name=job_name,
                requeue=True,
                **arguments,
            )
        except TypeError as error:
            reason = str(error).partition("() ")[2] or str(error)
            raise UsageError(
                f"--executor slurm: {reason}",
                "--executor-arg time=04:00:00 and --executor-arg partition=NAME are needed",
            ) from error
        forget_errors(stage, folder)
        try:
            _run_jobs(executor, stage, folder, advance)
        except BaseException:
            _cancel(job_name)  # Tasks may wait or run, also after an interruption.
            raise


def _run_jobs(executor: _Jobs, stage: CleaningStage, folder: Path, advance: Advance) -> None:
    """Start the jobs of a stage, and wait for them."""
    try:
        executor.run()
    except subprocess.CalledProcessError as error:
        raise UsageError(
            f"--executor slurm: sbatch refused the jobs of {stage.name}",
            "its reason is above; --executor-arg sets other arguments",
        ) from error
    done = 0
    for count in _completions(stage, folder):
        advance(count - done)
        done = count
        if done < stage.tasks and not _is_queued(str(executor.job_id)):
            break
    require_complete(stage, folder)


def _completions(stage: CleaningStage, folder: Path) -> Iterator[int]:
    """Yield the number of complete tasks, every few seconds until it is all of them."""
    while incomplete := len(incomplete_tasks(stage, folder)):
        yield stage.tasks - incomplete
        time.sleep(POLL_SECONDS)
    yield stage.tasks


def _is_queued(job: str) -> bool:
    """Return whether a job waits or runs, also if the controller does not answer."""
    outcome = subprocess.run(
        ["squeue", "-h", "-j", job], capture_output=True, check=False, text=True
    )
    if outcome.returncode != 0:
        return UNKNOWN_JOB not in outcome.stderr
    return bool(outcome.stdout.strip())


def _cancel(job_name: str) -> None:
    """Cancel what is left of an array."""
    command = ["scancel", "--quiet", "--name", job_name, "--user", getpass.getuser()]
    subprocess.run(command, capture_output=True, check=False)
