"""The page of an evaluation: ``zoo eval --report``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from zoo.report import html
from zoo.report.mistakes import Mistakes, mistake_values

NO_TABLES = ("confusion", "reliability", "intervals")  # details that are shown in other ways


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
        mistake_values=mistake_values(mistakes),
        tables=list(_tables(details)),
        settings=settings,
        command=command,
    )
    return page.encode()


def _tables(details: Mapping[str, Any]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield name, header and rows of each of the details that is a table."""
    for name, values in details.items():
        if name == "prompts":
            columns = list(values[0])
            yield "Prompts", columns, [_cells(prompt, columns) for prompt in values]
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
