"""What runs the tasks of a stage: processes of this machine or Ray; ``slurm.py`` has Slurm."""

import contextlib
import logging
import multiprocessing
import os
import signal
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, ClassVar

from datatrove.executor.base import PipelineExecutor
from datatrove.utils.logging import logger as datatrove_logger

from zoo.cleaning.deduplicate import CleaningStage
from zoo.errors import SourceError, UsageError, VerificationError, ZooError
from zoo.io.files import read_regular
from zoo.io.json import JsonStruct, encode_json, parse_json_record
from zoo.io.limits import MAX_JSON_BYTES
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import writing
from zoo.io.processes import exit_with_parent, hidden_main
from zoo.overrides import override

LOG = logging.getLogger("zoo")
MAX_RESTARTS = 3  # A task whose process is killed is started again so often.
ERRORS: dict[str, type[ZooError]] = {
    error.__name__: error for error in (SourceError, UsageError, VerificationError)
}
Advance = Callable[[int], None]


class Executor(ABC):
    """Runs the tasks of a stage that have not ended yet.

    Attributes:
        name: value of ``--executor``.
    """

    name: ClassVar[str]

    @abstractmethod
    def run(self, stage: CleaningStage, folder: Path, advance: Advance) -> None:
        """Run the tasks of a stage that are not complete.

        Args:
            stage: the stage.
            folder: directory that says which tasks are complete, and has their logs.
            advance: called with the number of tasks that have ended.

        Raises:
            ZooError: a task has failed, or its process was killed too often.
        """


class _Tasks(PipelineExecutor):  # type: ignore[misc]  # datatrove has no types
    """The tasks of a stage, of which each is run by a call of its own."""

    def __init__(self, stage: CleaningStage, folder: Path) -> None:
        super().__init__(list(stage.pipeline), str(folder))
        self.tasks = stage.tasks
        self.folder = folder

    @property
    @override
    def world_size(self) -> int:
        return self.tasks

    @override
    def get_distributed_env(self, node_rank: int = -1) -> Mapping[str, str]:
        unknown = {"cpus_per_task": "-1", "mem_per_cpu": "-1", "gpus_on_node": "-1"}
        values = {"node_ips": "localhost", "executor": "LOCAL", **unknown}
        return {f"datatrove_{name}": value for name, value in values.items()}

    @override
    def run(self) -> None:
        for task in self.get_incomplete_ranks():
            self.run_task(task)

    def run_task(self, task: int) -> None:
        """Run a task; its log is a file."""
        self._run_for_rank(task, local_rank=1)


class _TaskError(JsonStruct):
    """The error that a task has failed with.

    Attributes:
        name: name of its class in ``ERRORS``; empty for others.
        what: what is wrong.
        hint: what to do; may be empty.
    """

    name: str
    what: str
    hint: str


def _run_in_process(tasks: _Tasks, task: int) -> None:
    """Run a task, and leave its error in a file: the main function of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The process that has started it ends it.
    exit_with_parent()
    # datatrove writes its logs and bars to standard error as well.
    errors = os.open(tasks.folder / f"stderr-{task:05d}.log", os.O_WRONLY | os.O_CREAT, 0o666)
    os.dup2(errors, 2)
    try:
        with writing(tasks.folder):
            tasks.run_task(task)
    except ZooError as error:
        _write_error(tasks.folder, task, type(error).__name__, error.what, error.hint)
        raise SystemExit(1) from error
    except Exception as error:
        _write_error(tasks.folder, task, "", f"{type(error).__name__}: {error}", "")
        raise SystemExit(1) from error


def _write_error(folder: Path, task: int, name: str, what: str, hint: str) -> None:
    error = _TaskError(name=name, what=what, hint=hint)
    atomic_write(_error_path(folder, task), encode_json(error))


def _read_error(folder: Path, task: int, stage: str) -> ZooError:
    """Return the error of a task that has failed."""
    log = folder / "logs" / f"task_{task:05d}.log"
    error = _TaskError(name="", what="it ended without a message", hint="")
    path = _error_path(folder, task)
    if path.is_file():
        error = parse_json_record(read_regular(path, "error", MAX_JSON_BYTES), path, _TaskError)
    if error.name in ERRORS:
        return ERRORS[error.name](error.what, error.hint)
    return VerificationError(f"task {task} of {stage} has failed: {error.what}", f"see {log}")


def _error_path(folder: Path, task: int) -> Path:
    return folder / f"error-{task:05d}.json"


class LocalExecutor(Executor):
    """Processes of this machine, of which each runs a task.

    datatrove's own executor waits for ever if one of its processes is killed, for example for its
    memory. Here such a task is started again, a few times.

    Args:
        workers: number of processes at the same time.
    """

    name: ClassVar[str] = "local"

    def __init__(self, workers: int) -> None:
        self.workers = workers

    @override
    def run(self, stage: CleaningStage, folder: Path, advance: Advance) -> None:
        tasks = _Tasks(stage, folder)
        waiting: list[int] = tasks.get_incomplete_ranks()
        advance(stage.tasks - len(waiting))
        forget_errors(stage, folder)
        context = _start_server()
        kills: Counter[int] = Counter()
        running: dict[int, tuple[int, BaseProcess]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.workers:
                    task = waiting.pop(0)
                    started = context.Process(target=_run_in_process, args=(tasks, task))
                    with hidden_main():
                        started.start()
                    running[started.sentinel] = (task, started)
                for sentinel in wait(list(running)):
                    assert isinstance(sentinel, int), "these are descriptors"
                    task, process = running.pop(sentinel)
                    process.join()
                    if _has_completed(process, task, stage, folder, kills):
                        advance(1)
                    else:
                        waiting.insert(0, task)
        finally:
            for _, process in running.values():
                process.kill()
                process.join()


def _start_server() -> ForkServerContext:
    """Start the server that has imported the libraries and forks each process, if none runs.

    It ends with this process. Whoever reads the output of a command that ran in this process would
    wait for it, so it does not have this process's standard streams.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["zoo.cleaning.executors", "spacy"])
    streams = (0, 1, 2)
    kept_streams = [os.dup(stream) for stream in streams]
    null = os.open(os.devnull, os.O_RDWR)
    try:
        for stream in streams:
            os.dup2(null, stream)
        # The tracker of resources, which is started as well, gets ``sys.stderr``.
        with open(os.devnull, "w") as file, contextlib.redirect_stderr(file), hidden_main():
            forkserver.ensure_running()
    finally:
        os.close(null)
        for stream, kept_stream in zip(streams, kept_streams, strict=True):
            os.dup2(kept_stream, stream)
            os.close(kept_stream)
    return context


def _has_completed(
    process: BaseProcess, task: int, stage: CleaningStage, folder: Path, kills: "Counter[int]"
) -> bool:
    """Return whether a task is complete, or else has to be started again.

    Raises:
        ZooError: it has failed, or was killed too often.
    """
    code = process.exitcode or 0
    if code == 0:
        return True
    if code > 0:
        raise _read_error(folder, task, stage.name)
    name = signal.Signals(-code).name
    kills[task] += 1
    if kills[task] > MAX_RESTARTS:
        raise VerificationError(
            f"task {task} of {stage.name} was killed {kills[task]} times, last by {name}",
            "give fewer --workers, or smaller files if the memory was full",
        )
    LOG.warning("task %d of %s was killed by %s; it is started again", task, stage.name, name)
    return False


class RayExecutor(Executor):
    """Tasks of Ray, on the cluster that the environment names or on this machine.

    Args:
        workers: number of tasks at the same time.
        arguments: further arguments of datatrove's ``RayPipelineExecutor``.
    """

    name: ClassVar[str] = "ray"

    def __init__(self, workers: int, arguments: Mapping[str, Any]) -> None:
        self.workers = workers
        self.arguments = dict(arguments)

    @override
    def run(self, stage: CleaningStage, folder: Path, advance: Advance) -> None:
        try:
            import ray
            from datatrove.executor.ray import RayPipelineExecutor
        except ImportError as error:
            raise UsageError(f"--executor ray: {error}", "pip install ray") from error
        datatrove_logger.remove()  # It would write its messages to standard error.
        if not ray.is_initialized():
            ray.init(log_to_driver=False)
        forget_errors(stage, folder)
        executor = RayPipelineExecutor(
            pipeline=[ReportedSteps(stage, folder)],
            tasks=stage.tasks,
            workers=self.workers,
            logging_dir=str(folder),
            **self.arguments,
        )
        executor.run()
        require_complete(stage, folder)
        advance(stage.tasks)


class ReportedSteps:
    """The steps of a stage, as one step that leaves the error of a task in a file.

    Args:
        stage: the stage.
        folder: directory of the stage.
    """

    def __init__(self, stage: CleaningStage, folder: Path) -> None:
        self.steps = list(stage.pipeline)
        self.folder = folder

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        """Run a task."""
        try:
            for step in self.steps:
                data = step(data, rank, world_size)
            if data is not None:
                deque(data, maxlen=0)
        except ZooError as error:
            _write_error(self.folder, rank, type(error).__name__, error.what, error.hint)
            raise


def incomplete_tasks(stage: CleaningStage, folder: Path) -> list[int]:
    """Return the numbers of the tasks of a stage that are not complete."""
    tasks: list[int] = _Tasks(stage, folder).get_incomplete_ranks()
    return tasks


def forget_errors(stage: CleaningStage, folder: Path) -> None:
    """Remove what tasks have left that failed before."""
    for task in range(stage.tasks):
        _error_path(folder, task).unlink(missing_ok=True)


def require_complete(stage: CleaningStage, folder: Path) -> None:
    """Check that all tasks of a stage are complete.

    Raises:
        ZooError: the error of a task that failed, or that some have not ended.
    """
    incomplete = incomplete_tasks(stage, folder)
    for task in incomplete:
        if _error_path(folder, task).is_file():
            raise _read_error(folder, task, stage.name)
    if incomplete:
        raise VerificationError(
            f"{len(incomplete)} of {stage.tasks} tasks of {stage.name} are not complete",
            f"see the logs in {folder}; --resume runs these tasks again",
        )
