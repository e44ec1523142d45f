"""The command ``zoo compare``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.options import common_options, seed_option, shared_option
from zoo.cli.output import result, side_by_side, table
from zoo.cli.parameter_types import LocalPath

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from zoo.evaluation.compare_predictions import SystemComparison
    from zoo.training.compare import RunGroup

FIGURE_FILE = "losses.svg"  # The file of --figures.


@click.command(
    epilog="""\b
Examples:
  zoo compare runs/one runs/other
  zoo compare runs/* --figures losses
  zoo compare runs/one runs/other --test
  zoo compare first.csv second.csv
  zoo compare first/ second/ --metric bleu

Runs that differ only in the seed share a column: the median, and the range in
brackets. A directory of runs, such as `zoo pretrain --seeds 3` writes, stands
for all of them.

Two files of `zoo eval --predictions`, or two directories with files of the same
names, are compared by tests on the same samples: McNemar's of right and wrong,
and permutations of other metrics. P-values are adjusted for the number of tests
(Holm). With --test, so are the models of two runs of `zoo finetune` on their
evaluation data, or of two directories with a run for each task."""
)
@click.argument("runs", nargs=-1, required=True, type=LocalPath("file"), metavar="RUN...")
@shared_option(
    "figures",
    "Draw the validation losses, as SVG: a panel for each objective.",
    type=LocalPath("output"),
)
@click.option(
    "--test",
    is_flag=True,
    help="Evaluate the models of two fine-tuning runs, and test the differences.",
)
@click.option(
    "--metric",
    "metric",
    metavar="NAME",
    multiple=True,
    help="Metric of generated texts to compare predictions by, such as bleu; may be repeated.",
)
@seed_option
@common_options
def command(
    runs: tuple[Path, ...],
    figures: Path | None,
    test: bool,
    metric: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Compare training runs by their last evaluations, or predictions of two systems by tests."""
    _require_paths(runs)
    if _are_predictions(runs):
        from zoo.evaluation.compare_predictions import compare_predictions

        _test(compare_predictions, runs, metric, seed, as_json=as_json)
        return
    if test:
        from zoo.api.comparing_runs import compare_models

        if figures is not None:
            raise click.UsageError("--test draws no figures", click.get_current_context())
        _test(compare_models, runs, metric, seed, as_json=as_json)
        return
    if metric:
        raise click.UsageError(
            "--metric is for tests: add --test, or give files of predictions",
            click.get_current_context(),
        )
    _compare_runs(runs, figures, as_json=as_json)


def _compare_runs(runs: "Sequence[Path]", figures: Path | None, *, as_json: bool) -> None:
    """Print the last evaluations of runs side by side, and draw their losses."""
    from zoo.report.figures import figure_path
    from zoo.training.compare import find_runs, group_runs

    # The path is checked before the logs are read.
    output = None if figures is None else figure_path(figures, FIGURE_FILE)
    groups = group_runs(find_runs(runs))
    lines: list[str] = []
    for task in dict.fromkeys(group.task for group in groups):
        lines += _panel(task, [group for group in groups if group.task == task])
    for group in groups:
        if group.changes and group.task == groups[0].task:
            lines += [f"{group.name} differs from {groups[0].name} in"]
            lines += [*(f"  {change}" for change in group.changes), ""]
    if output is not None:
        from zoo.errors import UsageError
        from zoo.report.figures import plot_bands

        panels: dict[str, dict[str, Any]] = {}
        for drawn in groups:
            if curve := drawn.curve():
                unit = f"{drawn.loss}: validation loss (nats)"
                panels.setdefault(unit, {})[drawn.name] = curve
        if not panels:
            raise UsageError(
                "runs of different seeds have no evaluations at the same steps to draw",
                "leave --figures out",
            )
        plot_bands(output, panels, x="step")
        lines.append(f"figure: {output}")
    if not lines[-1]:
        lines.pop()
    result({"groups": [group.to_dict() for group in groups]}, lines, as_json=as_json)


def _require_paths(paths: "Sequence[Path]") -> None:
    """Check that all paths exist; raises ``SourceError``."""
    from zoo.errors import SourceError

    for path in paths:
        if not path.exists():
            raise SourceError(
                f"{path} does not exist", "give runs, or files of `zoo eval --predictions`"
            )


def _are_predictions(paths: "Sequence[Path]") -> bool:
    """Return whether paths are files, or directories of files that belong to no run."""
    from zoo.evaluation.compare_predictions import SUFFIXES
    from zoo.io.output.overwrite import RUNS

    for path in paths:
        if path.is_file():
            continue
        if not path.is_dir() or any((path / name).exists() for name in RUNS):
            return False
        if not any(entry.suffix in SUFFIXES for entry in path.iterdir()):
            return False
    return True


def _test(
    compare: "Callable[..., list[SystemComparison]]",
    paths: "Sequence[Path]",
    metrics: "Sequence[str]",
    seed: int,
    *,
    as_json: bool,
) -> None:
    """Print the tests of two systems by a function, such as ``compare_predictions``."""
    import msgspec

    if len(paths) != 2:
        raise click.UsageError(
            f"two systems are compared, and {len(paths)} were given", click.get_current_context()
        )
    comparisons = compare(paths[0], paths[1], metrics=metrics, seed=seed)
    rows: list[tuple[str, ...]] = []
    for comparison in comparisons:
        difference = comparison.second - comparison.first
        rows.append(
            (
                comparison.name,
                comparison.metric,
                f"{comparison.first:.4f}",
                f"{comparison.second:.4f}",
                f"{difference:+.4f} [{comparison.low:+.4f}, {comparison.high:+.4f}]",
                comparison.test,
                f"{comparison.p:.4g}",
                f"{comparison.adjusted:.4g}",
            )
        )
    header = ["task", "metric", "first", "second", "difference", "test", "p", "adjusted p"]
    if not comparisons[0].name:
        header = header[1:]
        rows = [row[1:] for row in rows]
    lines = [f"first: {paths[0]}", f"second: {paths[1]}"]
    lines.append(f"{comparisons[0].samples:,} samples" if len(header) == 7 else "")
    value = {"comparisons": msgspec.to_builtins(comparisons)}
    result(value, [*filter(None, lines), *table(rows, header)], as_json=as_json)


def _panel(task: str, groups: "Sequence[RunGroup]") -> list[str]:
    """Return the table of the runs of one task or objective: runs as columns, metrics as rows.

    Different losses, such as a distillation's, are rows of their own.
    """
    losses = {group.loss for group in groups}
    cells_by_group = []
    names = list[str]()
    for group in groups:
        cells = {"seeds": str(len(group.paths))}
        for name, summary in group.summary.items():
            median, low, high = (f"{value:.4g}" for value in summary)
            label = name
            if name == "loss" and len(losses) > 1:
                label = f"loss ({group.loss})"
            cells[label] = median if low == high else f"{median} ({low} to {high})"
            if label not in (*names, "seconds"):
                names.append(label)
        cells_by_group.append(cells)
    names.append("seconds")
    if any(len(group.paths) > 1 for group in groups):
        names.insert(0, "seeds")
    columns = []
    for group, cells in zip(groups, cells_by_group, strict=True):
        columns.append([group.name, *(cells.get(name, "") for name in names)])
    return [*side_by_side([task, *names], columns), ""]
