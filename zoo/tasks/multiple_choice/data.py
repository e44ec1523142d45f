"""Multiple-choice questions: from tables, and as records of ``zoo run``."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zoo.data.readers.documents import iter_files
from zoo.data.readers.labelled import text_hash
from zoo.data.readers.parquet import ClassName
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import Reviewed
from zoo.data.readers.tables import Row, column_names, parse_cell, read_rows, require_text
from zoo.inference.processing.records import RecordKeys
from zoo.inference.processing.table_records import ColumnNames, InputColumns
from zoo.overrides import override
from zoo.tasks.multiple_choice import ALIASES

CHOICES = "choices"  # key of a record
NUMBERED = re.compile(r"(?:ending|choice|option)([0-9]+)")  # columns of one choice each
BLANK = re.compile(r"_+")  # the place of the choice in a question


@dataclass(frozen=True)
class ChoiceColumns:
    """Names of the columns of a table of multiple-choice questions; see ``read_choices``."""

    text: str = "context"
    pair: str | None = None  # column of the question, or of the beginning that the choices continue
    label: str = "label"  # column of the correct choice
    # Column of lists of choices, or columns of one choice each; empty to find them.
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChoiceSample:
    """A question with choices, one of them correct."""

    context: str
    question: str  # or the beginning that the choices continue; empty for none
    choices: tuple[str, ...]  # at least two
    label: int  # index of the correct choice
    location: str  # file and line, for messages

    @property
    def hash(self) -> float:
        """Hash that splits data; all questions about a context are on one side."""
        return text_hash(self.context)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The texts of ``choice_texts``."""
        return choice_texts(self.context, self.question, self.choices)


def choice_texts(context: str, question: str, choices: Sequence[str]) -> list[tuple[str, str]]:
    """Return for each choice the context, and the question with the choice.

    A choice replaces a blank, ``_``, in the question, or else follows it after a space, as in
    utils_multiple_choice.py of transformers' examples. Nothing else is added or removed: white
    space of choices counts, because byte-level tokenizers read it.
    """
    parts = BLANK.split(question)
    if len(parts) > 1:
        return [(context, choice.join(parts)) for choice in choices]
    prefix = f"{question} " if question else ""
    return [(context, f"{prefix}{choice}") for choice in choices]


def review_choice(sample: ChoiceSample) -> Reviewed:
    """Return what is reviewed of a question with choices."""
    texts = [sample.context]
    if sample.question:
        texts.append(sample.question)
    texts += sample.choices
    return Reviewed(texts, (sample.label,))


def read_choices(
    paths: Iterable[str | Path],
    columns: ChoiceColumns | None = None,
    problems: RowProblems | None = None,
) -> list[ChoiceSample]:
    """Return the multiple-choice questions of tables.

    Default columns are ``context``, ``question`` (optional), ``choices`` and ``label``, or the
    names of ``ALIASES`` where they are missing. Choices are a list (as JSON text in TSV and CSV),
    or in columns such as ``ending0``, ``ending1``. A label is an index from 0, a letter from A, or
    the text of a choice.
    """
    return list(iter_choices(paths, columns, problems))


def iter_choices(
    paths: Iterable[str | Path],
    columns: ChoiceColumns | None = None,
    problems: RowProblems | None = None,
) -> Iterator[ChoiceSample]:
    """Yield the multiple-choice questions of tables; see ``read_choices``."""
    choice_columns = columns or ChoiceColumns()

    def read(file: Path, file_problems: RowProblems) -> Iterator[ChoiceSample]:
        return _samples(file, choice_columns, file_problems)

    return iter_files(paths, read, problems)


def _samples(file: Path, columns: ChoiceColumns, problems: RowProblems) -> Iterator[ChoiceSample]:
    names = resolve_columns(columns, column_names(file))

    def sample(row: Row) -> ChoiceSample:
        location = row.location
        values = row.values
        cells = [values[name] for name in names.choices]
        choices, choice_names = parse_choices(cells, f"{location}: {names.choices[0]}")
        context = row.text(names.text)
        question = "" if names.pair is None else row.text(names.pair)
        label_location = f"{location}: {names.label}"
        label = _index(values[names.label], choices, choice_names, label_location)
        return ChoiceSample(context, question, choices, label, location)

    required_columns = [names.text]
    if names.pair is not None:
        required_columns.append(names.pair)
    required_columns += [*names.choices, names.label]
    return problems.checked(read_rows(file, required_columns, problems), sample)


def resolve_columns(columns: ChoiceColumns, present: Sequence[str]) -> ChoiceColumns:
    """Return the columns of a table, with aliases in place of defaults that are missing."""

    def resolve(name: str) -> str:
        for alias in (name, *ALIASES.get(name, ())):
            if alias in present:
                return alias
        return name

    text = resolve(columns.text)
    pair = columns.pair
    question = resolve("question")
    if not pair and question in present and question != text:
        pair = question
    return replace(
        columns,
        text=text,
        pair=pair or None,
        label=resolve(columns.label),
        choices=columns.choices or _choice_columns(present, resolve("choices")),
    )


def _choice_columns(present: Sequence[str], list_column: str) -> tuple[str, ...]:
    """Return the column of lists of choices, or else the columns of one choice each."""
    numbers = {}
    for name in present:
        match = NUMBERED.fullmatch(name)
        if match:
            numbers[name] = int(match[1])
    if list_column in present or len(numbers) < 2:
        return (list_column,)
    return tuple(sorted(numbers, key=numbers.__getitem__))


def parse_choices(cells: list[Any], location: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the choices of a row, and their names if the table has some."""
    names: Any = ()
    values: Any = cells if len(cells) > 1 else cells[0]
    if isinstance(values, str):
        values = parse_cell(values, location)
    if isinstance(values, dict):
        names = values.get("label") or ()
        values = values.get("text")
    if not isinstance(values, list) or len(values) < 2 or len(names) not in (0, len(values)):
        raise RowError(f"{location} is not a list of two choices or more")
    texts = tuple(require_text(choice, location) for choice in values)
    return texts, tuple(map(str, names))


def _index(value: Any, choices: Sequence[str], names: Sequence[str], location: str) -> int:
    """Return the index of the choice that a label is: by its name, or its number or text."""
    labellings: list[Sequence[str]] = [names]
    if not names:
        numbers = list(map(str, range(len(choices))))
        letters = [chr(ord("A") + number) for number in range(min(len(choices), 26))]
        stripped_choices = [choice.strip() for choice in choices]
        labellings = [numbers, letters, choices, stripped_choices]
    if not isinstance(value, bool) and value is not None:
        for labels in labellings:
            for text in (str(value), str(value).strip()):
                if text in labels:
                    return list(labels).index(text)
        if isinstance(value, ClassName) and value.number < len(choices):
            return value.number
    raise RowError(
        f"{location} is {value!r}, which is none of the {len(choices)} choices",
        "give a number from 0, a letter from A, or the text of a choice",
    )


@dataclass(frozen=True)
class ChoiceInput(InputColumns):
    """Columns of a table of questions for ``zoo run``."""

    choices: tuple[str, ...] = ()  # column of lists of choices, or columns of one choice each

    @override
    def headerless(self, keys: RecordKeys) -> ColumnNames:
        return super().headerless(keys)._replace(others=self.choices)

    @override
    def find(self, path: Path, present: Sequence[str], keys: RecordKeys) -> ColumnNames:
        columns = ChoiceColumns(self.text or keys.pair[0], self.pair, choices=self.choices)
        names = resolve_columns(columns, present)
        # A table may lack choices, which options then give.
        choices: tuple[str, ...] = ()
        if self.choices or set(names.choices) <= set(present):
            choices = names.choices
        return ColumnNames(names.text, names.pair, choices)

    @override
    def extra(self, values: Mapping[str, Any], names: ColumnNames, location: str) -> dict[str, Any]:
        """Return the list of choices."""
        if not names.others:
            return {}
        cells = [values[name] for name in names.others]
        choices, _ = parse_choices(cells, f"{location}: {names.others[0]}")
        return {CHOICES: list(choices)}
