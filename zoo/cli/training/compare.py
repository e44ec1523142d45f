"""The command ``zoo compare``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.options import common_options, shared_option
from zoo.cli.output import result, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.training.compare import RunGroup

FIGURE = "losses.svg"  # file of --figures


@click.command(
    epilog="""\b
Examples:
  zoo compare runs/one runs/other
  zoo compare runs/* --figures losses

Runs that differ only in the seed share a row: the median, and the range in brackets.
A directory of runs, such as `zoo pretrain --seeds 3` writes, stands for all of them."""
)
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@shared_option(
    "figures",
    "Draw the validation losses, as SVG.",
    type=click.Path(path_type=Path),
    former=("-o", "--output"),
)
@common_options
def command(runs: tuple[Path, ...], figures: Path | None, as_json: bool) -> None:
    """Compare training runs by their last evaluations."""
    from zoo.errors import UsageError
    from zoo.report.figures import figure_path, plot_bands
    from zoo.training.compare import find_runs, group_runs

    output = None if figures is None else figure_path(figures, FIGURE)  # before reading the logs
    groups = group_runs(find_runs(runs))
    kinds = list(dict.fromkeys(group.loss for group in groups))
    if output is not None and len(kinds) > 1:
        raise UsageError(
            f"losses of {' and '.join(kinds)} are different quantities, which are not drawn in one "
            "figure",
            "draw the runs of each on their own, or leave --figures out",
        )
    columns = _columns(groups)
    rows = [
        [
            group.name,
            str(len(group.paths)),
            *([group.loss] if len(kinds) > 1 else []),
            *(
                _cell(group.summary.get(n) if task in (None, group.task) else None)
                for n, task in columns
            ),
        ]
        for group in groups
    ]
    names = [name if task is None else f"{name} of {task}" for name, task in columns]
    lines = table(rows, ("runs", "seeds", *(["loss of"] if len(kinds) > 1 else []), *names))
    lines += [f"{g.name}: {change}" for g in groups for change in g.changes]
    if len(kinds) > 1:
        lines.append(
            f"losses of {' and '.join(kinds)} are different quantities: do not compare them"
        )
    if output is not None:
        curves = {group.name: group.curve() for group in groups}
        if not any(curves.values()):
            raise UsageError(
                "runs of different seeds have no evaluations at the same steps to draw",
                "leave --figures out",
            )
        plot_bands(output, curves, x="step", y="validation loss (nats)")
        lines.append(f"figure: {output}")
    result({"groups": list(map(_as_json, groups))}, lines, as_json=as_json)


def _columns(groups: "Sequence[RunGroup]") -> list[tuple[str, str | None]]:
    """Return the names of the columns, each with a task where several have such a metric.

    The loss has one column, next to what it is the loss of.
    """
    columns: list[tuple[str, str | None]] = []
    for name in dict.fromkeys(name for group in groups for name in group.summary):
        tasks = dict.fromkeys(group.task for group in groups if name in group.summary)
        one = name in ("loss", "seconds") or len(tasks) == 1
        columns += [(name, None)] if one else [(name, task) for task in tasks]
    return columns


def _as_json(group: "RunGroup") -> dict[str, Any]:
    return {
        "name": group.name,
        "runs": [str(path) for path in group.paths],
        "changes": list(group.changes),
        "loss": group.loss,
        "metrics": {
            name: {"median": middle, "lowest": low, "highest": high}
            for name, (middle, low, high) in group.summary.items()
        },
    }


def _cell(values: tuple[float, float, float] | None) -> str:
    if values is None:
        return ""
    middle, low, high = (f"{value:.4g}" for value in values)
    return middle if low == high else f"{middle} ({low} to {high})"
