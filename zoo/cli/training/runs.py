"""Starting, resuming and continuing runs of any type, over one seed or several."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zoo.cli import failure
from zoo.cli.options import count_option, offline_option, output_option, shared_option
from zoo.cli.output import result
from zoo.cli.parameter_types import FiniteRange, IntegerRange, LocalPath
from zoo.cli.training.options import DurationType
from zoo.io.limits import MAX_THREADS
from zoo.io.progress import enable_progress

if TYPE_CHECKING:
    from zoo.training.distributed.context import DistContext
    from zoo.training.run import Run, RunPaths

Function = TypeVar("Function", bound=Callable[..., Any])


def runs_options(function: Function) -> Function:
    """Add the options of a run's directory and devices."""
    for option in reversed(
        (
            shared_option("epochs", type=FiniteRange(0, min_open=True)),
            shared_option("max_time", type=DurationType()),
            count_option("--seeds", "Train N runs, with seeds from --seed on."),
            click.option(
                "--resume",
                type=LocalPath("file", file_okay=False),
                metavar="RUN",
                help="Directory of a run to resume.",
            ),
            click.option(
                "--continue-from",
                type=LocalPath("file", file_okay=False),
                metavar="RUN",
                help="Begin a run with the last checkpoint of another one.",
            ),
            click.option(
                "--reset-optimizer",
                is_flag=True,
                help="Begin with a new state of the optimizer, with --continue-from.",
            ),
            shared_option("device", "Device, such as cpu or cuda; by default CUDA if available."),
            click.option(
                "--fsdp", is_flag=True, default=None, help="Shard weights and optimizer state."
            ),
            click.option(
                "--keep-optimizer",
                is_flag=True,
                default=None,
                help="Keep the optimizer's state at the end, for --continue-from.",
            ),
            shared_option("threads", type=IntegerRange(1, MAX_THREADS)),
            offline_option,
            output_option("Directory of the run."),
            shared_option("force", "Move an earlier run in this directory to DIR.old-1."),
        )
    ):
        function = option(function)
    return function


def run_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a ``Run`` that ``runs_options`` give."""
    return {name: options[name] for name in ("output", "offline", "force", "max_time")}


@contextlib.contextmanager
def processes(options: Mapping[str, Any]) -> Iterator["DistContext"]:
    """Yield rank and device; of several processes, only the main one speaks, also of errors."""
    from zoo.training.distributed.context import DistContext, ReportedElsewhere

    try:
        with DistContext.opened(options["device"], options["threads"]) as dist:
            failure.state.has_process_group = True
            if not dist.is_main_process:
                logging.getLogger("zoo").setLevel(logging.CRITICAL)
                warnings.simplefilter("ignore")
                enable_progress(False)
            yield dist
    except ReportedElsewhere as error:
        raise click.exceptions.Exit(error.exit_code) from None


def train(
    ctx: click.Context, run: "Run", options: Mapping[str, Any]
) -> tuple[dict[str, str], list[Path]]:
    """Start, resume or continue a run, or one with each of several seeds."""
    from zoo.training.seeds import is_seed_directory, resume_seeds, train_seeds

    resume, parent, seeds = (options[name] for name in ("resume", "continue_from", "seeds"))
    if parent is not None:
        return _continue(ctx, run, options), []
    if options["reset_optimizer"]:
        raise click.UsageError("--reset-optimizer is for --continue-from RUN", ctx)
    if resume is None:
        if seeds is None:
            return _paths(run.start()), []
        return _seed_paths(train_seeds(run, seeds))
    if run.force:
        raise click.UsageError("--force is for new runs; leave it out with --resume", ctx)
    if run.output not in (None, resume):
        raise click.UsageError(f"--resume {resume} continues in that directory; leave -o out", ctx)
    if is_seed_directory(resume):
        if seeds is not None or run.given:
            raise click.UsageError(f"--resume {resume} uses the settings of its runs", ctx)
        return _seed_paths(resume_seeds(run, resume))
    if seeds is not None:
        raise click.UsageError(f"{resume} is a single run; leave --seeds out", ctx)
    return _paths(run.resume(resume)), []


def _continue(ctx: click.Context, run: "Run", options: Mapping[str, Any]) -> dict[str, str]:
    from zoo.training.seeds import is_seed_directory, seed_directories

    parent: Path = options["continue_from"]
    for name in ("resume", "seeds"):
        if options[name] is not None:
            what = f"--continue-from continues one run; leave --{name} out"
            raise click.UsageError(what, ctx)
    if is_seed_directory(parent):
        first = seed_directories(parent)[0]
        what = f"{parent} has runs of several seeds; name one, as {first}"
        raise click.UsageError(what, ctx)
    return _paths(run.continue_from(parent, reset_optimizer=options["reset_optimizer"]))


def _paths(paths: "RunPaths") -> dict[str, str]:
    report = paths.run / "report.html"
    return {"run": str(paths.run), "model": str(paths.model), "report": str(report)}


def _seed_paths(runs: list[Path]) -> tuple[dict[str, str], list[Path]]:
    return {"runs": str(runs[0].parent)}, runs


def print_paths(paths: Mapping[str, str], *, as_json: bool) -> None:
    """Print the paths of a run, one a line."""
    result(dict(paths), [f"{name}: {path}" for name, path in paths.items()], as_json=as_json)
