"""Jobs over many files on Ray: actors, each with a model, take the files one after another.

These are actors of Ray Core. ``map_batches`` of Ray Data, with the names of the files as its rows,
would do less with them: it starts an actor that died and its file again without end, a file that
fails ends the job or is dropped without its name (``max_errored_blocks``), and its own tasks need
a CPU that no actor holds, or the job waits for ever. It would balance load no better, since an
actor that is idle takes the next file.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from zoo.data.many_files.folder import JobFolder, JobResult
from zoo.data.many_files.plan import FileJob
from zoo.errors import PluginError, SourceError, UsageError, VerificationError, ZooError
from zoo.io.progress import progress

INSTALL = "pip install ray"
MAX_ATTEMPTS = 3  # A file is given up when so many actors that wrote it have died.
LOG_LINES = 20  # So many lines of each log are shown if Ray does not start.
LOGS = ("gcs_server.out", "raylet.out", "raylet.err", "dashboard_agent.log")
CONNECT_SECONDS = 10  # until a cluster must answer
START_SECONDS = 600  # until an actor must have loaded its model


class Runner(Protocol):
    """What an actor does with files."""

    def settings(self, job: FileJob) -> dict[str, Any]:
        """Return what all outputs depend on, apart from their inputs."""

    def run(self, job: FileJob, resume: bool) -> int:
        """Write the output of a file; return the number of its rows."""


@dataclass(frozen=True)
class RayOptions:
    """The actors of a job.

    Attributes:
        actors: number of actors.
        cpus_per_actor: CPUs that Ray reserves for each.
    """

    actors: int = 1
    cpus_per_actor: int = 1


class _FileActor:
    """An actor: it works in the directory of the command, with a runner of its own."""

    def __init__(self, folder: str, make_runner: Callable[[], Runner]) -> None:
        with contextlib.suppress(OSError):  # Another machine may lack the directory.
            os.chdir(folder)
        self._runner = make_runner()

    def settings(self, job: FileJob) -> dict[str, Any]:
        with _portable_errors():
            return self._runner.settings(job)

    def run(self, job: FileJob, resume: bool) -> int:
        with _portable_errors():
            return self._runner.run(job, resume)


@contextlib.contextmanager
def _portable_errors() -> Iterator[None]:
    """Raise errors of zoo as one of the classes that another process can read."""
    try:
        yield
    except ZooError as error:
        for error_class in (UsageError, VerificationError, SourceError, PluginError):
            if isinstance(error, error_class):
                raise error_class(error.what, error.hint, error.details) from None
        raise


class RayJob:
    """A job whose files are written by actors of Ray.

    Args:
        folder: the folder of the outputs, with the files of the shard.
        make_runner: returns what an actor runs; it is pickled.
        options: the actors.
    """

    def __init__(
        self, folder: JobFolder, make_runner: Callable[[], Runner], options: RayOptions
    ) -> None:
        self._ray = require_ray()
        self._folder = folder
        self._make_runner = make_runner
        self._options = options
        self._failures: dict[str, ZooError] = {}

    def run(self, resume: bool) -> JobResult:
        """Write the files of the shard.

        An actor that dies is replaced, and its file continued. A file with a row that cannot be
        used does not stop the others.

        Raises:
            UsageError: the cluster has too few CPUs for the actors.
            SourceError: Ray is not installed, or does not start.
            ZooError: files have failed; the details name each.
        """
        with self._cluster():
            first_actor = self._start_actor()
            settings = self._get(first_actor.settings.remote(_absolute(self._folder.jobs[0])))
            remaining_jobs = self._folder.claim(settings)
            rows, written = self._write(remaining_jobs, first_actor, resume)
        if self._failures:
            raise self._error()
        return self._folder.result(written=written, rows=rows)

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[None]:
        """Connect to the cluster that is named by the environment, or start one on this machine."""
        ray = self._ray
        own = not ray.is_initialized()
        if own and "RAY_ADDRESS" not in os.environ:
            require_cpus(self._options, [os.cpu_count() or 1], "this machine has")
        if own:
            start_ray(ray)
        try:
            nodes = [node for node in ray.nodes() if node["Alive"]]
            cpus = [int(node["Resources"].get("CPU", 0)) for node in nodes]
            require_cpus(self._options, cpus, "the machines of the cluster have")
            yield
        finally:
            if own:
                ray.shutdown()

    def _start_actor(self) -> Any:
        actor_class = self._ray.remote(num_cpus=self._options.cpus_per_actor)(_FileActor)
        return actor_class.remote(os.getcwd(), self._make_runner)

    def _get(self, reference: Any) -> Any:
        """Return the result of the first call of an actor, which waits for its CPUs."""
        ray = self._ray
        try:
            return ray.get(reference, timeout=START_SECONDS)
        except ray.exceptions.GetTimeoutError as error:
            raise SourceError(
                f"Ray has not started an actor in {START_SECONDS // 60} minutes",
                "other jobs may hold the CPUs of the cluster; see `ray status`",
            ) from error
        except ray.exceptions.RayTaskError as error:
            raise _cause(error) from error
        except ray.exceptions.RayActorError as error:
            raise _actor_death(self._folder.jobs[0]) from error

    def _write(self, jobs: Sequence[FileJob], first_actor: Any, resume: bool) -> tuple[int, int]:
        """Give each idle actor a file until none is left; return the rows and files written."""
        ray = self._ray
        waiting_jobs = list(reversed(jobs))
        attempts: dict[str, int] = {}
        actors = [first_actor]
        while len(actors) < min(self._options.actors, len(jobs)):
            actors.append(self._start_actor())
        running: dict[Any, tuple[FileJob, Any]] = {}
        rows = 0
        written = 0
        label = "running files on Ray"
        with progress(label, len(jobs), unit="files") as advance:
            while actors or running:
                while actors and waiting_jobs:
                    job = waiting_jobs.pop()
                    try:
                        self._folder.begin_file(job)
                    except ZooError as error:
                        self._failures[job.name] = error
                        advance(1)
                        continue
                    actor = actors.pop()
                    attempts[job.name] = attempts.get(job.name, 0) + 1
                    # The file of an actor that died is continued after its complete rows.
                    continues = resume or attempts[job.name] > 1
                    reference = actor.run.remote(_absolute(job), continues)
                    running[reference] = (job, actor)
                if not running:
                    break
                (done, *_), _ = ray.wait(list(running), num_returns=1)
                job, actor = running.pop(done)
                try:
                    rows += ray.get(done)
                    self._folder.finish_file(job)
                    written += 1
                except ray.exceptions.RayTaskError as error:
                    self._failures[job.name] = _cause(error)
                except ray.exceptions.RayActorError:
                    actor = self._start_actor()
                    if attempts[job.name] < MAX_ATTEMPTS:
                        waiting_jobs.append(job)
                        actors.append(actor)
                        continue
                    self._failures[job.name] = _actor_death(job)
                actors.append(actor)
                advance(1)
        return rows, written

    def _error(self) -> ZooError:
        """Return the error of all files that have failed; its class is that of the first."""
        failures = list(self._failures.values())
        first = failures[0]
        if len(failures) == 1:
            return first
        details = [str(failure) for failure in failures]
        total = len(self._folder.jobs)
        error = f"{len(failures):,} of {total:,} files have no output"
        return type(first)(error, "correct them, and --resume computes them", details)


def run_on_ray(
    folder: JobFolder,
    make_runner: Callable[[], Runner],
    options: RayOptions,
    *,
    resume: bool,
) -> JobResult:
    """Write the files of a job by actors of Ray; see ``RayJob``."""
    return RayJob(folder, make_runner, options).run(resume)


def require_ray() -> Any:
    """Return the module ``ray``; raises ``SourceError`` if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise SourceError("--engine ray takes ray, which is not installed", INSTALL) from error
    return ray


def start_ray(ray: Any) -> None:
    """Connect to a cluster, or start one; an error has the end of Ray's own logs."""
    _require_cluster(os.environ.get("RAY_ADDRESS", ""))
    try:
        # Ray would print its address and the addresses of its pages.
        ray.init(logging_level="ERROR", log_to_driver=False, include_dashboard=False)
    except Exception as error:  # Ray raises a plain Exception, a RuntimeError and many more.
        folder = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "session_latest" / "logs"
        first_line = str(error).strip().split("\n")[0]
        raise SourceError(
            f"Ray did not start: {first_line}", f"its logs are in {folder}", _last_lines(folder)
        ) from error


def _require_cluster(address: str) -> None:
    """Check that a cluster answers: Ray would try for many minutes."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise SourceError(
            f"no cluster of Ray answers at {address}: {error.strerror or error}",
            "correct RAY_ADDRESS, or unset it to start Ray on this machine",
        ) from error


def _last_lines(folder: Path) -> list[str]:
    """Return the last lines of Ray's logs, each with the name of its file."""
    lines = []
    for name in LOGS:
        with contextlib.suppress(OSError):
            content = (folder / name).read_text("utf-8", "replace").splitlines()
            lines += [f"{name}: {line}" for line in content[-LOG_LINES:]]
    return lines


def require_cpus(options: RayOptions, cpus: Sequence[int], subject: str) -> None:
    """Check that the actors of a job find their CPUs: Ray would wait for ever.

    Args:
        options: the actors.
        cpus: number of CPUs of each machine; an actor is on one of them.
        subject: beginning of the message about the machines.
    """
    places = sum(count // options.cpus_per_actor for count in cpus)
    if places >= options.actors:
        return
    needs = f"--actors {options.actors} with {options.cpus_per_actor} CPUs each"
    numbers = " + ".join(map(str, cpus)) or "0"
    hint = f"give --actors {places}" if places else f"give --cpus-per-actor {max(cpus, default=1)}"
    raise UsageError(f"{needs} do not fit: {subject} {numbers}", hint)


def _absolute(job: FileJob) -> FileJob:
    """Return a file of a job with paths that do not depend on the working directory."""
    return replace(job, source=job.source.absolute(), output=job.output.absolute())


def _cause(error: Any) -> ZooError:
    """Return the error of zoo that ended a call of an actor, or raise a bug as it is."""
    cause = error.cause
    if not isinstance(cause, ZooError):
        raise error
    return cause


def _actor_death(job: FileJob) -> SourceError:
    return SourceError(
        f"{job.source}: the actor that read it died {MAX_ATTEMPTS} times",
        "its memory may be too small; --resume continues the file",
    )
