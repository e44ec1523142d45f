"""What a command prints: results on standard output, everything else on standard error."""

import json
import logging
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import click


def prepare() -> None:
    """Send warnings and notes to standard error, a line each."""
    warnings.showwarning = _warning
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("zoo")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _warning(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, UserWarning):
        click.echo(f"warning: {' '.join(str(message).split())}", err=True)


def result(value: dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print a result: one JSON object, or lines for people."""
    if as_json:
        click.echo(json.dumps(value, ensure_ascii=False))
        return
    for line in lines:
        click.echo(line)


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> list[str]:
    """Lay out rows in aligned columns."""
    every = [list(header), *map(list, rows)]
    widths = [max(len(row[k]) for row in every) for k in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]


def markdown(rows: Sequence[Sequence[str]], header: Sequence[str]) -> list[str]:
    """Lay out rows as a table in Markdown."""
    every = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(row)} |" for row in every]


def fail(what: str, remedy: str, code: int, arguments: Sequence[str]) -> None:
    """Print an error as one line, and as a JSON object if one was asked for."""
    line = f"{what}; {remedy}" if remedy else what
    click.echo(f"error: {line}", err=True)
    if "--json" in arguments:
        click.echo(json.dumps({"error": what, "remedy": remedy, "exit_code": code}))


def abandon_stdout() -> None:
    """Whoever read standard output is gone: write what is buffered nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
