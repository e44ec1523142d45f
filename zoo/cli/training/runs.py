"""Starting and resuming of runs of any kind, over one seed or several."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zoo.cli.options import count_option
from zoo.cli.output import result

if TYPE_CHECKING:
    from zoo.training.distributed.context import DistContext
    from zoo.training.entrypoints import RunKind

Function = TypeVar("Function", bound=Callable[..., Any])


def runs_options(function: Function) -> Function:
    """Add the options of a run's directory and devices."""
    for option in reversed(
        (
            count_option("--seeds", "Train N runs, with seeds from --seed on."),
            click.option(
                "--resume",
                type=click.Path(path_type=Path, file_okay=False),
                metavar="RUN",
                help="Directory of a run to resume.",
            ),
            click.option(
                "--continue-from",
                type=click.Path(path_type=Path, file_okay=False),
                metavar="RUN",
                help="Begin a run with the last checkpoint of another one.",
            ),
            click.option(
                "--reset-optimizer",
                is_flag=True,
                help="Begin with a new state of the optimizer, with --continue-from.",
            ),
            click.option(
                "--device",
                metavar="D",
                help="Device, such as cpu or cuda; by default CUDA if available.",
            ),
            click.option(
                "--fsdp", is_flag=True, default=None, help="Shard weights and optimizer state."
            ),
            click.option(
                "--keep-optimizer",
                is_flag=True,
                default=None,
                help="Keep the optimizer's state at the end, for --continue-from.",
            ),
            click.option("--offline", is_flag=True, help="Make no network connection."),
            click.option(
                "-o", "--output", type=click.Path(path_type=Path), help="Directory of the run."
            ),
        )
    ):
        function = option(function)
    return function


@dataclass(frozen=True)
class RunRequest:
    """Settings, paths and device of a run, from the command line.

    Attributes:
        values: settings of a file, or the model alone.
        overrides: settings of options.
        file: file that ``values`` are from, or ``None``.
        resume: directory of a run to resume, or ``None``.
        continue_from: directory of a run to continue as another one, or ``None``.
        reset_optimizer: begin with a new state of the optimizer.
        seeds: number of runs; ``None`` for one.
        output: directory of the run, or ``None`` for the default.
        device: device, by default CUDA if available.
        offline: make no network connection.
        as_json: print a JSON object.
    """

    values: dict[str, Any]
    overrides: dict[str, Any]
    file: Path | None
    resume: Path | None
    continue_from: Path | None
    reset_optimizer: bool
    seeds: int | None
    output: Path | None
    device: str | None
    offline: bool
    as_json: bool

    @classmethod
    def from_options(cls, options: Mapping[str, Any], **settings: Any) -> "RunRequest":
        """Return the request of a command.

        Args:
            options: values of ``runs_options`` and ``common_options``, and others.
            **settings: ``values``, ``overrides`` and ``file``.
        """
        names = cls.__dataclass_fields__.keys() - settings.keys()
        return cls(**settings, **{name: options[name] for name in names})


def run_command(
    ctx: click.Context,
    kind: "RunKind",
    request: RunRequest,
    finish_seeds: Callable[[Path, list[Path]], dict[str, str]] | None = None,
) -> None:
    """Start or resume a run, or several, and print their paths.

    Args:
        ctx: context of the command, for errors.
        kind: kind of the run.
        request: settings, paths and device.
        finish_seeds: function of the directory of several runs and of their directories, called in
            the main process when all have ended; it returns further paths to print.
    """
    paths = train_runs(ctx, kind, request, finish_seeds)
    if paths is not None:
        result(paths, [f"{name}: {path}" for name, path in paths.items()], as_json=request.as_json)


def train_runs(
    ctx: click.Context,
    kind: "RunKind",
    request: RunRequest,
    finish_seeds: Callable[[Path, list[Path]], dict[str, str]] | None = None,
) -> dict[str, str] | None:
    """Start or resume a run, or several; return their paths, in the main process alone.

    Args:
        ctx: see ``run_command``, as the others.
        kind: kind of the run.
        request: settings, paths and device.
        finish_seeds: called when several runs have ended.
    """
    from zoo.errors import Interrupted
    from zoo.training.distributed.context import DistContext

    dist = DistContext.initialize(request.device)
    try:
        paths = _train(ctx, kind, request, dist, finish_seeds)
    except RuntimeError as error:
        if not dist.is_peer_failure(error):
            raise
        raise Interrupted("another process of the run ended", "its own message says why") from error
    finally:
        dist.destroy()
    return paths if dist.is_main_process else None


def _train(
    ctx: click.Context,
    kind: "RunKind",
    request: RunRequest,
    dist: "DistContext",
    finish_seeds: Callable[[Path, list[Path]], dict[str, str]] | None,
) -> dict[str, str]:
    """Start or resume a run, or several, and return their paths."""
    from zoo.training.seeds import is_seed_directory, resume_seeds, train_seeds

    resume, changes = request.resume, request.overrides
    more: dict[str, Any] = {"offline": request.offline, "kind": kind}
    if request.continue_from is not None:
        return _paths(*_continue(ctx, kind, request, request.continue_from, dist))
    if request.reset_optimizer:
        raise click.UsageError("--reset-optimizer is for --continue-from RUN", ctx)
    if resume is not None and request.output not in (None, resume):
        raise click.UsageError(f"--resume {resume} continues in that directory; leave -o out", ctx)
    if resume is not None and is_seed_directory(resume):
        if request.seeds is not None or request.values or changes:
            raise click.UsageError(f"--resume {resume} uses the settings of its runs", ctx)
        runs = resume_seeds(resume, dist, **more)
        return _seed_paths(runs, dist, finish_seeds)
    if resume is not None:
        if request.seeds is not None:
            raise click.UsageError(f"{resume} is a single run; leave --seeds out", ctx)
        return _paths(*kind.resume(resume, request.values, changes, dist, offline=request.offline))
    more["file"] = request.file
    if request.seeds is not None:
        runs = train_seeds(request.values, changes, request.output, dist, request.seeds, **more)
        return _seed_paths(runs, dist, finish_seeds)
    del more["kind"]
    return _paths(*kind.train(request.values, changes, request.output, dist, **more))


def _continue(
    ctx: click.Context, kind: "RunKind", request: RunRequest, parent: Path, dist: "DistContext"
) -> tuple[Path, Path]:
    """Continue a run as another one, and return the directories of the run and its model."""
    from zoo.training.seeds import is_seed_directory, seed_directories

    for option, value in (("--resume", request.resume), ("--seeds", request.seeds)):
        if value is not None:
            raise click.UsageError(f"--continue-from continues one run; leave {option} out", ctx)
    if is_seed_directory(parent):
        first = seed_directories(parent)[0]
        raise click.UsageError(f"{parent} has runs of several seeds; name one, as {first}", ctx)
    return kind.continue_from(
        parent,
        request.values,
        request.overrides,
        request.output,
        dist,
        offline=request.offline,
        file=request.file,
        reset_optimizer=request.reset_optimizer,
    )


def _seed_paths(
    runs: list[Path],
    dist: "DistContext",
    finish: Callable[[Path, list[Path]], dict[str, str]] | None,
) -> dict[str, str]:
    directory = runs[0].parent
    further = finish(directory, runs) if finish is not None and dist.is_main_process else {}
    return {"runs": str(directory), **further}


def _paths(run: Path, model: Path) -> dict[str, str]:
    return {"run": str(run), "model": str(model), "report": str(run / "report.html")}
