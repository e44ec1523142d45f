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
    names = [*texts, *([] if label is None else [label])]

    def group(row: Row) -> TextGroup:
        location = row.location
        values = row.values
        group = tuple(map(row.text, texts))
        if label is None:
            return TextGroup(group, None, location)
        require_label(values[label], f"{location} has no {label}")
        return TextGroup(group, values[label], location)

    return iter_files(
        paths, lambda file, found: found.checked(read_rows(file, names, found), group), problems
    )


def review_group(sample: TextGroup) -> Reviewed:
    """Return what is reviewed of texts that are compared, with or without a score."""
    return Reviewed(sample.texts, None if sample.label is None else (str(sample.label).strip(),))
