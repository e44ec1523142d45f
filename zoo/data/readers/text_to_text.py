"""Reader of sources and targets: from the rows of tables to samples, of one data set or several."""

import os.path
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zoo.data.readers.labelled import Columns, read_samples, text_hash
from zoo.errors import UsageError, VerificationError

NAMED = re.compile(r"([\w.+-]+)=(.+)")  # a data set's name, and its file


@dataclass(frozen=True, slots=True)
class TextToText:
    """A source text and its target.

    Attributes:
        source: the source, with its prefix.
        target: the target.
        dataset: name of the data set, empty for none.
        location: file and line, for messages.
    """

    source: str
    target: str
    dataset: str
    location: str

    @property
    def hash(self) -> float:
        """See ``zoo.data.readers.labelled.Hashed``."""
        return text_hash(self.source)


def split_name(path: str) -> tuple[str, str]:
    """Return name and path of ``NAME=FILE``; the name is empty for a path alone."""
    named = NAMED.fullmatch(path)
    if named is None or os.path.exists(path):
        return "", path
    return named[1], named[2]


def dataset_names(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct names of data sets, in order."""
    return tuple(dict.fromkeys(split_name(path)[0] for path in paths))


def prefix_of(name: str, prefix: str | dict[str, str] | None) -> str:
    """Return the text before each source of a data set.

    Args:
        name: name of the data set.
        prefix: the text, for all data sets or by name; ``None`` for ``NAME: ``.
    """
    if isinstance(prefix, str):
        return prefix
    return (prefix or {}).get(name, f"{name}: " if name else "")


def read_text_to_text(
    paths: Sequence[str],
    columns: Columns,
    prefix: str | dict[str, str] | None = None,
    names: Sequence[str] | None = None,
) -> list[TextToText]:
    """Return the samples of tables.

    Args:
        paths: files, directories or patterns, also as ``NAME=FILE``.
        columns: columns of source and target.
        prefix: see ``prefix_of``.
        names: names that the data sets may have; ``None`` for any.

    Raises:
        UsageError: a data set or column is unknown, or there are no rows.
        SourceError: a file cannot be read.
        VerificationError: a file is damaged, or a source or target is missing.
    """
    samples = list[TextToText]()
    for path in paths:
        name, file = split_name(path)
        if names is not None and name not in names:
            raise UsageError(
                f"{path} is of no data set that is trained on",
                f"write it as {' or '.join(f'{n}={file}' if n else file for n in names)}",
            )
        start = prefix_of(name, prefix)
        samples += [
            TextToText(start + row.text, _target(row.label, row.location), name, row.location)
            for row in read_samples([file], columns)
        ]
    return samples


def _target(value: Any, location: str) -> str:
    """Return a target as text.

    Raises:
        VerificationError: it is neither text nor a number.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise VerificationError(f"{location}: the target is {value!r}, which is not text")
