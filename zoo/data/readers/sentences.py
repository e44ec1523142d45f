"""Reader of plain sentences: a line of a text file, or a column of a table."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from zoo.data.readers.completions import TABLES, suffix_of
from zoo.data.readers.documents import ReaderConfig, expand_paths, read_documents
from zoo.data.readers.tables import read_rows, require_text
from zoo.data.readers.text_groups import TextGroup
from zoo.errors import UsageError


def read_sentences(paths: Iterable[str | Path], column: str) -> list[TextGroup]:
    """Return the sentences of files.

    Args:
        paths: files, directories or patterns; see ``read_documents`` for the formats, and tables
            with tabs or commas.
        column: column of the text in tables, JSON lines and Parquet.

    Raises:
        UsageError: a column is missing (the nearest is named), or there is no text.
        SourceError: a file cannot be read.
        VerificationError: a file is damaged, or a value is no text.
    """
    files = expand_paths(list(paths))
    sentences = [sentence for file in files for sentence in _sentences(file, column)]
    if not sentences:
        raise UsageError(f"{', '.join(map(str, files))} has no text", "give a file with text")
    return sentences


def _sentences(file: Path, column: str) -> Iterator[TextGroup]:
    if suffix_of(file) in TABLES:
        for location, values in read_rows(file, [column]):
            text = require_text(values[column], f"{location}: {column}")
            yield TextGroup((text,), None, location)
        return
    reading = ReaderConfig(document_separator="line", text_field=column)
    for number, line in enumerate(read_documents([file], reading), 1):
        yield TextGroup((line,), None, f"{file}, text {number}")
