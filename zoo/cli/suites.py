"""The table of a suite, and the end of a command that has no result of some tasks."""

from collections.abc import Iterable, Mapping, Sequence

import click

from zoo.cli.output import fail, table
from zoo.errors import ZooError


def suite_table(
    rows: Iterable[Sequence[str]], average: str, evaluated: int, missing: Sequence[str]
) -> list[str]:
    """Return the lines of a table of tasks.

    Args:
        rows: task, names of metrics, values and score.
        average: the average.
        evaluated: number of tasks that the average is over.
        missing: names of the other averaged tasks.
    """
    title = f"average of {evaluated} of {evaluated + len(missing)}" if missing else "average"
    lines = table([*rows, (title, "", "", average)], ("task", "metrics", "values", "score"))
    if missing:
        lines += ["", f"missing: {', '.join(missing)}"]
    return lines


def require_all_tasks(
    failures: Mapping[str, ZooError],
    missing_files: Mapping[str, str],
    *,
    hint: str,
    as_json: bool,
) -> None:
    """End a command that has printed a table without some tasks; see ``incomplete_suite``."""
    from zoo.suites.failures import incomplete_suite

    error = incomplete_suite(failures, missing_files, hint)
    if error is None:
        return
    if as_json:
        # The object on standard output names the tasks. An error would be a second object.
        fail(error.what, error.hint, error.exit_code, (), error.details)
        raise click.exceptions.Exit(error.exit_code)
    raise error
