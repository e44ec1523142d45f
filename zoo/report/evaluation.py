"""The page of an evaluation: ``zoo eval --report``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoo.report import html
from zoo.report.drawings import ranges_drawing
from zoo.report.mistakes import Mistakes, mistake_values

NO_TABLES = ("confusion", "reliability", "intervals")  # details that are shown in other ways
ROW_DETAILS = ("conditions", "prompts")  # Details that are rows of accuracies.
MOST_ROWS = 40  # Rows of a drawing.
# Columns of such rows that are no levels of a factor.
MEASURES = ("accuracy", "low", "high", "lowest", "highest", "deviation")


def evaluation_page(
    title: str,
    lead: str,
    metrics: Mapping[str, float],
    details: Mapping[str, Any],
    mistakes: Mistakes,
    settings: str,
    command: str,
) -> bytes:
    """Return the page of an evaluation, with metric -> value, the most important first.

    ``command`` is the command that repeats it; it is empty for an evaluation in Python.
    """
    intervals = details.get("intervals", {})
    facts = []
    for name, value in metrics.items():
        ends = intervals.get(name)
        interval = "" if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f} (95 %)"
        facts.append((name.replace("_", " "), _value(value), interval))
    page = html.render(
        "evaluation.html",
        title=title,
        lead=lead,
        facts=facts,
        figures=_figures(details),
        mistake_values=mistake_values(mistakes),
        tables=list(_tables(details)),
        settings=settings,
        command=command,
    )
    return page.encode()


def _figures(details: Mapping[str, Any]) -> list[str]:
    """Return a drawing of the accuracies of conditions, or else of prompts; none without them."""
    for name in ROW_DETAILS:
        if name in details:
            rows = details[name]
            break
    else:
        return []
    title = f"Accuracy by {name.removesuffix('s')}"
    if len(rows) > MOST_ROWS:
        title += f", {MOST_ROWS} of {len(rows):,}"
    names = []
    for row in rows[:MOST_ROWS]:
        levels = []
        for column, value in row.items():
            if column in MEASURES or column.startswith("difference"):
                continue
            levels.append(value if isinstance(value, str) else f"{column} {value}")
        names.append(", ".join(levels))
    return [ranges_drawing(title, rows[:MOST_ROWS], names).figure()]


def _tables(details: Mapping[str, Any]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield name, header and rows of each of the details that is a table."""
    for name, values in details.items():
        if name in ROW_DETAILS:
            columns = list(values[0])
            header = [column.replace("_", " ") for column in columns]
            yield name.capitalize(), header, [_cells(row, columns) for row in values]
            continue
        if not isinstance(values, Mapping) or name in NO_TABLES or not values:
            continue
        title = name.replace("_", " ").capitalize()
        rows = []
        if all(isinstance(row, Mapping) for row in values.values()):
            columns = list(next(iter(values.values())))
            for label, row in values.items():
                rows.append([label, *_cells(row, columns)])
        else:
            columns = ["value"]
            for label, value in values.items():
                rows.append([label, _value(value)])
        yield title, ["", *columns], rows


def _cells(row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    return [_value(row[name]) for name in columns]


def _value(value: float | str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) or (value.is_integer() and abs(value) > 1):
        return f"{int(value):,}"
    return f"{value:.4f}"
