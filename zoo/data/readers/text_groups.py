"""Reader of texts that are compared: from the rows of tables to groups of two texts or more."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.data.readers.documents import iter_files
from zoo.data.readers.labelled import text_hash
from zoo.data.readers.tables import read_rows, require_text
from zoo.errors import VerificationError


@dataclass(frozen=True, slots=True)
class TextGroup:
    """Texts that are compared.

    Attributes:
        texts: an anchor, a text that belongs to it, and texts that do not; or two texts.
        label: score or class of two texts as the table has it; ``None`` without one.
        location: file and line, for messages.
    """

    texts: tuple[str, ...]
    label: Any
    location: str

    @property
    def hash(self) -> float:
        """See ``zoo.data.readers.labelled.Hashed``: that of the first text."""
        return text_hash(self.texts[0])


def read_text_groups(
    paths: Iterable[str | Path], texts: Sequence[str], label: str | None = None
) -> list[TextGroup]:
    """Return the groups of tables.

    Args:
        paths: files, directories or patterns; see ``read_rows`` for the formats.
        texts: columns of the texts.
        label: column of the label, or ``None``.

    Raises:
        UsageError: a column is missing (the nearest is named), or there are no rows.
        SourceError: a file cannot be read.
        VerificationError: a file is damaged, or a text or label is missing.
    """
    return list(iter_text_groups(paths, texts, label))


def iter_text_groups(
    paths: Iterable[str | Path], texts: Sequence[str], label: str | None = None
) -> Iterator[TextGroup]:
    """Yield the groups of tables; see ``read_text_groups``."""
    return iter_files(paths, lambda file: _groups(file, texts, label))


def _groups(file: Path, texts: Sequence[str], label: str | None) -> Iterable[TextGroup]:
    for location, values in read_rows(file, [*texts, *([] if label is None else [label])]):
        group = tuple(require_text(values[name], f"{location}: {name}") for name in texts)
        value = None if label is None else values[label]
        if label is not None and value in (None, ""):
            raise VerificationError(f"{location} has no {label}", "leave the row out")
        yield TextGroup(group, value, location)
