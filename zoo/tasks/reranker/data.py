"""Reader of texts that are ranked for a query: from the rows of tables to lists."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.data.readers.documents import iter_files
from zoo.data.readers.labelled import label_number, text_hash
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import Reviewed
from zoo.data.readers.tables import Row, read_rows, require_text


@dataclass(frozen=True, slots=True)
class TextList:
    """A query and its texts."""

    text: str  # the query
    documents: tuple[str, ...]
    labels: tuple[float, ...]  # grade or score of each text
    location: str  # file and line of the first row, for messages
    # whether the labels are margins between the first text and the others, as 0 and -margin
    margins: bool = False

    @property
    def hash(self) -> float:
        """Hash of the query, which splits data."""
        return text_hash(self.text)


@dataclass(frozen=True)
class ListColumns:
    """Names of the columns of a table of texts for queries."""

    text: str  # the queries
    pair: str  # a text for the query, or a list of texts
    # grade of the text, or a list of grades; ``None`` for 1, and 0 of ``negatives``
    label: str | None
    # texts, or lists of texts, that are not relevant. With them, ``label`` has a score of each
    # text, or the margin between the text and each negative
    negatives: tuple[str, ...] = ()


def read_lists(
    paths: Iterable[str | Path],
    columns: ListColumns,
    problems: RowProblems | None = None,
    *,
    grouped: bool = False,
) -> list[TextList]:
    """Return the lists of tables, one of each row; or, if they are grouped, one of each query."""

    def text_list(row: Row) -> TextList:
        location = row.location
        values = row.values
        query = row.text(columns.text)
        texts = _texts(values[columns.pair], f"{location}: {columns.pair}")
        negatives = []
        for name in columns.negatives:
            negatives += _texts(values[name], f"{location}: {name}")
        if columns.label is None:
            labels = [1.0] * len(texts) + [0.0] * len(negatives)
        else:
            label_values = values[columns.label]
            if not isinstance(label_values, list):
                label_values = [label_values]
            label_location = f"{location}: {columns.label}"
            labels = [label_number(label, label_location) for label in label_values]
        documents = (*texts, *negatives)
        if not documents:
            raise RowError(f"{location} has no texts", "give the query a text, or leave it out")
        margins = bool(negatives) and len(labels) == len(documents) - 1
        if margins:
            labels = [0.0, *(-margin for margin in labels)]
        if len(labels) != len(documents):
            counts = f"{len(labels)} labels and {len(documents)} texts"
            raise RowError(f"{location} has {counts}", "give each text a label")
        return TextList(query, documents, tuple(labels), location, margins)

    names = [columns.text, columns.pair, *columns.negatives]
    if columns.label is not None:
        names.append(columns.label)

    def read(file: Path, file_problems: RowProblems) -> Iterator[TextList]:
        return file_problems.checked(read_rows(file, names, file_problems), text_list)

    lists = iter_files(paths, read, problems)
    return join_lists(lists) if grouped else list(lists)


def join_lists(lists: Iterable[TextList]) -> list[TextList]:
    """Return one list for each query."""
    query_lists: dict[str, list[TextList]] = {}
    for item in lists:
        query_lists.setdefault(item.text, []).append(item)
    joined_lists = []
    for query, items in query_lists.items():
        documents: list[str] = []
        labels: list[float] = []
        for item in items:
            documents += item.documents
            labels += item.labels
        joined_list = TextList(query, tuple(documents), tuple(labels), items[0].location)
        joined_lists.append(joined_list)
    return joined_lists


def _texts(value: Any, location: str) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [require_text(text, location) for text in values]


def review_list(sample: TextList) -> Reviewed:
    """Return what is reviewed of a query and its texts."""
    return Reviewed((sample.text, *sample.documents), sample.labels)
