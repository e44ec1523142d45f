"""The tasks that fit a model and its data, for commands in which none is named."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

from zoo.conversion.local_family import converted_checkpoint, local_family
from zoo.data.readers.documents import expand_paths
from zoo.data.readers.tables import column_names, read_rows
from zoo.data.readers.text_io import split_name
from zoo.errors import UsageError, ZooError, did_you_mean
from zoo.families.tasks import ColumnValues, Part, TaskColumn, TaskSpec
from zoo.plugins.tasks import load_part, public_tasks

ROWS_READ = 8  # Rows of a table whose values are compared with a task's columns.
COMMANDS: dict[Part, str] = {"train": "zoo finetune", "evaluate": "zoo eval"}
# Options of fine-tuning that every task has.
SHARED_OPTIONS = ("text", "pair", "label")


def missing_task(
    part: Part, model: str | None, data: Sequence[str], options: Mapping[str, Any]
) -> UsageError:
    """Return the error of a command without a task, which names the tasks that fit.

    Args:
        part: what the command does.
        model: family or reference, if one is given.
        data: files of data, ``NAME=FILE``, directories or patterns.
        options: options that name columns or belong to a task -> their values, if given.
    """
    requested = {name: value for name, value in options.items() if value not in (None, (), False)}
    problem = "no task is named"
    help_hint = f"`{COMMANDS[part]} --help` lists the tasks"
    model_tasks = [spec for spec in public_tasks(part) if _fits_model(spec, part, model)]
    if not data:
        tasks_of_model = ", ".join(spec.name for spec in model_tasks)
        return UsageError(problem, f"name one with --task: {tasks_of_model}")
    file = split_name(data[0])[1]
    table = _Table.read(file)
    for option in SHARED_OPTIONS:
        column = requested.get(option)
        if table.columns and column is not None and not table.has(column):
            suggestion = did_you_mean(column, table.columns)
            hint = f"there are {', '.join(table.columns)}"
            if suggestion:
                hint = f"{suggestion} T{hint[1:]}"
            return UsageError(f"{problem}, and {file} has no column {column!r}", hint)
    names = []
    for spec in model_tasks:
        if _accepts(spec, part, requested) and _fits_table(spec, part, table, requested):
            names.append(spec.name)
    subject = file if model is None else f"{model} and {file}"
    if names:
        return UsageError(problem, f"these fit {subject}: --task {', '.join(names)}")
    if table.is_plain_text:
        return UsageError(f"{problem}, and none fits {subject}, which is plain text", help_hint)
    if table.columns:
        columns = ", ".join(table.columns)
        hint = f"name the columns of {file} ({columns}) with --text and --label; {help_hint}"
        return UsageError(f"{problem}, and none fits {subject} as it is", hint)
    return UsageError(problem, help_hint)


def _fits_model(spec: TaskSpec, part: Part, model: str | None) -> bool:
    """Return whether a model has a task, or may have it if nothing is known about the model."""
    if model is None:
        return True
    if part == "evaluate":
        checkpoint = converted_checkpoint(model)
        if checkpoint is not None:
            try:
                load_part(spec, part).require_supported(checkpoint)
            except ZooError:
                return False
            return True
    family = local_family(model)
    return family is None or not spec.heads or bool({*spec.heads} & {*family.heads()})


def _accepts(spec: TaskSpec, part: Part, requested: Mapping[str, Any]) -> bool:
    """Return whether a task has the options that are given."""
    declared = spec.train_options if part == "train" else spec.eval_options
    names = {option.name for option in declared}
    if part == "train":
        names.update(SHARED_OPTIONS)
    return names >= requested.keys()


class _Table:
    """The columns and first rows of a file; none if it is not a table."""

    def __init__(
        self, names: Sequence[str], columns: Sequence[str], rows: Sequence[Mapping[str, Any]]
    ) -> None:
        self.names = names  # The name of the file, or of the files in a directory.
        self.columns = tuple(columns)
        self.rows = rows

    @classmethod
    def read(cls, text: str) -> "_Table":
        """Read the beginning of a file; the command reports what cannot be read."""
        path = Path(text).expanduser()
        if path.is_dir():
            return cls([child.name for child in path.iterdir()], (), ())
        columns: Sequence[str] = ()
        rows: list[Mapping[str, Any]] = []
        try:
            path = expand_paths([text])[0]
            columns = column_names(path)
            rows = [row.values for row in islice(read_rows(path, None), ROWS_READ)]
        except ZooError:
            pass
        return cls([path.name], columns, rows)

    @property
    def is_plain_text(self) -> bool:
        """Whether the file is text without columns: its only name is the first line."""
        return len(self.columns) == 1 and self.names[0].lower().endswith(".txt")

    def has(self, column: str) -> bool:
        """Return whether a column exists, by its name or by its number from 1."""
        is_number = column.isascii() and column.isdigit()
        return column in self.columns or (is_number and 0 < int(column) <= len(self.columns))

    def values(self, column: str) -> list[Any]:
        """Return the values of a column in the first rows."""
        if column not in self.columns:
            column = self.columns[int(column) - 1]
        return [row[column] for row in self.rows if column in row]


def _fits_table(spec: TaskSpec, part: Part, table: _Table, requested: Mapping[str, Any]) -> bool:
    """Return whether a task reads a file with the columns that options and defaults name."""
    columns = spec.columns
    file_patterns = spec.file_patterns
    if part == "evaluate" and spec.eval_columns:
        columns = spec.eval_columns
        file_patterns = ()
    for pattern in file_patterns:
        if any(fnmatch(name.lower(), pattern) for name in table.names):
            return True
    if not columns or not table.columns:
        return False
    for option in SHARED_OPTIONS:
        if option in requested and option not in columns:
            return False
    return all(
        _fits_column(column, table, requested.get(option)) for option, column in columns.items()
    )


def _fits_column(column: TaskColumn, table: _Table, value: Any) -> bool:
    """Return whether a table has a column, or several for an option that is repeated."""
    names = (value,) if isinstance(value, str) else tuple(value or ())
    if not names:
        names = tuple(name for name in column.default_names if name in table.columns)[:1]
    if not names:
        return not column.required
    for name in names:
        if not table.has(name):
            return False
        if not all(_is_value(item, column.values) for item in table.values(name)):
            return False
    return True


def _is_value(value: Any, values: ColumnValues) -> bool:
    """Return whether a cell has a value of a column."""
    if values == "any":
        return True
    if values == "text":
        return isinstance(value, str)
    if values == "texts":
        return isinstance(value, list)
    if values == "class":
        return isinstance(value, str | int | float)
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
