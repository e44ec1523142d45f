"""``report.html`` of a comparison: the curves of both models in the same charts."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import writing
from zoo.report import html
from zoo.report.figures import Band, draw_bands
from zoo.report.html import image_url
from zoo.training.logging.jsonl import Record
from zoo.training.logging.report import REPORT
from zoo.training.logging.run_history import RunHistory

MAX_POINTS = 400  # Points of a training curve; more would make the file large.
HEADER = ("", "pretrained", "from scratch", "difference", "95 % interval", "p")
Histories = Mapping[str, Sequence[RunHistory]]


def write_comparison_report(path: Path, histories: Histories, summary: Mapping[str, Any]) -> None:
    """Write the report of a comparison into its directory.

    Args:
        path: directory of the comparison.
        histories: name of a model -> logs of its runs, in the order of the seeds.
        summary: the result of ``zoo.finetuning.from_scratch.summarize``.
    """
    first_run = next(iter(histories.values()))[0]
    seeds = ", ".join(map(str, summary["seeds"]))
    page = html.render(
        "comparison.html",
        title=f"{first_run.config.get('task')} \N{MIDDLE DOT} pretrained and from scratch",
        lead=f"{first_run.config['init_from']['model']}, and the same model with random weights",
        note=f"Best evaluations by {summary['selected_by']}. Seeds: {seeds}; curves are medians, "
        "with the range over seeds.",
        header=HEADER,
        rows=list(_rows(summary)),
        test=summary.get("test", ""),
        figures=[(title, image_url(figure)) for title, figure in comparison_figures(histories)],
        runs=summary["runs"],
    )
    with writing(path / REPORT, remains=f"the runs in {path} remain"):
        atomic_write(path / REPORT, page.encode())


def comparison_figures(histories: Histories) -> Iterator[tuple[str, str]]:
    """Yield title and SVG of each chart: losses, then metrics, with a curve for each model."""
    first_run = next(iter(histories.values()))[0]
    charts: list[tuple[str, str, str | None]] = [
        ("validation", "loss", None),
        ("train", "loss", None),
    ]
    for metric in first_run.names("metrics"):
        charts.append(("validation", metric, "metrics"))
    for split, name, group in charts:
        title = f"{'training' if split == 'train' else 'validation'} {name.replace('_', ' ')}"
        curves = {}
        for model, runs in histories.items():
            logs = [run.train if split == "train" else run.validation for run in runs]
            curve = _band(logs, name, group)
            if curve:
                curves[model] = curve
        if curves:
            unit = f"{title} (nats)" if name == "loss" else title
            yield title, draw_bands({unit: curves}, x="step")


def _band(logs: Sequence[Sequence[Record]], name: str, group: str | None) -> Band:
    """Return step, median, lowest and highest value, at the steps that all runs have."""
    values: dict[int, list[float]] = {}
    for log in logs:
        for record in log:
            numbers = record if group is None else record.get(group, {})
            if name in numbers:
                values.setdefault(record["step"], []).append(float(numbers[name]))
    points = []
    for step, group_values in sorted(values.items()):
        if len(group_values) == len(logs):
            middle = statistics.median(group_values)
            points.append((float(step), middle, min(group_values), max(group_values)))
    stride = -(-len(points) // MAX_POINTS) or 1
    return [*points[:-1:stride], *points[-1:]]


def _rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for metric, values in summary["metrics"].items():
        if "difference" not in values:
            continue
        cells = [metric.replace("_", " ")]
        for numbers in (values["pretrained"], values["from-scratch"]):
            cell = f"{statistics.fmean(numbers):.4f}"
            if len(numbers) > 1:
                cell += f" \N{PLUS-MINUS SIGN} {statistics.stdev(numbers):.4f}"
            cells.append(cell)
        difference = values["difference"]
        cells.append(f"{difference['mean']:+.4f}")
        if "p" in difference:
            cells.append(f"{difference['low']:+.4f} to {difference['high']:+.4f}")
            cells.append(f"{difference['p']:.3g}")
        else:
            cells += ["", ""]
        yield tuple(cells)
