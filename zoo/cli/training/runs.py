"""Options and output of runs of any type, over one seed or several."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zoo.cli.options import count_option, offline_option, output_option, shared_option
from zoo.cli.output import result
from zoo.cli.parameter_types import FiniteRange, IntegerRange, LocalPath, RunDirectory
from zoo.cli.training.options import DurationType
from zoo.io.limits import MAX_THREADS
from zoo.io.numbers import int_from_environment
from zoo.training.distributed.reporting import ReportedElsewhere

if TYPE_CHECKING:
    from zoo.api.training import Training

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
                type=RunDirectory(),
                metavar="RUN",
                help="Directory of a run to resume.",
            ),
            click.option(
                "--auto-resume",
                is_flag=True,
                help="Start the run of -o, or resume it if it has begun; end at once if it is "
                "finished. Scripts that are started again need no condition.",
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
            click.option(
                "--timeout",
                type=DurationType(),
                metavar="TIME",
                help="Time that several processes wait for each other.  [default: 10m]",
            ),
            shared_option("threads", type=IntegerRange(1, MAX_THREADS)),
            offline_option,
            output_option("Directory of the run."),
            shared_option("force", "Move an earlier run in this directory to DIR.old-1."),
            click.option(
                "--dry-run",
                is_flag=True,
                help="Print what would be trained, on what data, for how long, and train nothing.",
            ),
        )
    ):
        function = option(function)
    return function


def print_training(training: "Training", lines: Sequence[str] = (), *, as_json: bool) -> None:
    """Print the paths of a run, one a line, and further lines; only the main process prints."""
    if int_from_environment("RANK", 0) != 0:
        return
    values = {**training.plan, **training.paths, **training.teacher_shard}
    value_lines = [f"{name}: {value}" for name, value in values.items()]
    result(training.to_dict(), [*value_lines, *lines], as_json=as_json)


@contextlib.contextmanager
def reporting_once() -> Iterator[None]:
    """End this process silently if the main process of a run reports its error."""
    try:
        yield
    except ReportedElsewhere as error:
        raise click.exceptions.Exit(error.exit_code) from None
