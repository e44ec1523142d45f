"""Reader of texts that are compared: from the rows of tables to groups of two texts or more."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.data.readers.documents import iter_files
from zoo.data.readers.labelled import require_label, text_hash
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.data.readers.tables import Row, read_rows


@dataclass(frozen=True, slots=True)
class TextGroup:
    """Texts that are compared."""

    # an anchor, a text that belongs to it, and texts that do not; or two texts
    texts: tuple[str, ...]
    label: Any  # score or class of two texts as in the table, or ``None``
    location: str  # file and line, for messages

    @property
    def hash(self) -> float:
        """Hash of the first text, which splits data."""
        return text_hash(self.texts[0])


def read_text_groups(
    paths: Iterable[str | Path],
    texts: Sequence[str],
    label: str | None = None,
    problems: RowProblems | None = None,
) -> list[TextGroup]:
    """Return the groups of texts in columns of tables, with a label if it has a column."""
    return list(iter_text_groups(paths, texts, label, problems))


def iter_text_groups(
    paths: Iterable[str | Path],
    texts: Sequence[str],
    label: str | None = None,
    problems: RowProblems | None = None,
) -> Iterator[TextGroup]:
    """Yield the groups of tables; see ``read_text_groups``."""
    names = list(texts)
    if label is not None:
        names.append(label)

    def make_group(row: Row) -> TextGroup:
        location = row.location
        row_texts = tuple(map(row.text, texts))
        if label is None:
            return TextGroup(row_texts, None, location)
        value = row.values[label]
        require_label(value, f"{location} has no {label}")
        return TextGroup(row_texts, value, location)

    def read_groups(file: Path, file_problems: RowProblems) -> Iterator[TextGroup]:
        return file_problems.checked(read_rows(file, names, file_problems), make_group)

    return iter_files(paths, read_groups, problems)


def review_group(sample: TextGroup) -> Reviewed:
    """Return what is reviewed of texts that are compared, with or without a score."""
    labels = None
    if sample.label is not None:
        labels = (str(sample.label).strip(),)
    return Reviewed(sample.texts, labels)
