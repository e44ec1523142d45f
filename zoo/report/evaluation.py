"""The page of an evaluation: ``zoo eval --report``."""

from collections.abc import Iterator, Mapping
from typing import Any

from zoo.report import html
from zoo.report.mistakes import Mistakes, mistake_values

DRAWN = ("confusion", "reliability")  # details that are charts


def evaluation_page(
    title: str,
    lead: str,
    metrics: Mapping[str, float],
    details: Mapping[str, Any],
    mistakes: Mistakes,
    settings: str,
) -> bytes:
    """Return the page of an evaluation, with metric -> value, the most important first."""
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
        found=mistake_values(mistakes),
        tables=list(_tables(details)),
        settings=settings,
    )
    return page.encode()


def _tables(details: Mapping[str, Any]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield name, header and rows of each of the details that is a table."""
    for name, values in details.items():
        if name == "prompts":
            columns = list(values[0])
            yield (
                "Prompts",
                columns,
                [[_value(prompt[key]) for key in columns] for prompt in values],
            )
            continue
        if not isinstance(values, Mapping) or name in (*DRAWN, "intervals") or not values:
            continue
        rows = values.items()
        title = name.replace("_", " ").capitalize()
        if all(isinstance(row, Mapping) for row in values.values()):
            columns = list(next(iter(values.values())))
            cells = [[label, *(_value(row[key]) for key in columns)] for label, row in rows]
            yield title, ["", *columns], cells
        else:
            yield title, ["", "value"], [[label, _value(value)] for label, value in rows]


def _value(value: float | str) -> str:
    if isinstance(value, str):
        return value
    whole = isinstance(value, int) or (value.is_integer() and abs(value) > 1)
    return f"{int(value):,}" if whole else f"{value:.4f}"
