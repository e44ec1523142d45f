"""Reader of texts for causal language models: documents, or prompts with completions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zoo.data.readers.documents import ReaderConfig, read_documents, read_files
from zoo.data.readers.labelled import Columns, iter_samples, text_hash
from zoo.data.readers.tables import read_rows, require_text
from zoo.data.readers.text_io import COMPRESSED
from zoo.errors import VerificationError

TABLES = (".tsv", ".csv")


@dataclass(frozen=True, slots=True)
class Completion:
    """A text whose end is predicted from its beginning.

    Attributes:
        prompt: the beginning; ``None`` for a document, of which every token is predicted.
        text: the rest.
        location: file and line, or number of the document, for messages.
    """

    prompt: str | None
    text: str
    location: str

    @property
    def hash(self) -> float:
        """See ``zoo.data.readers.labelled.Hashed``."""
        return text_hash(self.text if self.prompt is None else self.prompt)


def read_completions(
    paths: Iterable[str | Path], text: str, label: str | None = None
) -> list[Completion]:
    """Return prompts with completions from tables, or documents.

    Documents are read as ``read_documents`` does, blank lines between them; of tables with tabs or
    commas, each row is one.

    Args:
        paths: files, directories or patterns.
        text: column of the prompt, or of the document.
        label: column of the completion; ``None`` for documents.

    Raises:
        UsageError: a column is missing (the nearest is named), or there is no text.
        SourceError: a file cannot be read.
        VerificationError: a file is damaged, or a value is no text.
    """
    if label is not None:
        return list(iter_completions(paths, text, label))
    return read_files(paths, lambda file: _documents(file, text), "text", "give a file with text")


def iter_completions(paths: Iterable[str | Path], text: str, label: str) -> Iterator[Completion]:
    """Yield prompts with completions from tables; see ``read_completions``."""
    for sample in iter_samples(paths, Columns(text, label)):
        location = sample.location
        yield Completion(sample.text, _completion(sample.label, location), location)


def _documents(file: Path, text: str) -> Iterator[Completion]:
    if suffix_of(file) in TABLES:
        for location, values in read_rows(file, [text]):
            yield Completion(None, require_text(values[text], f"{location}: {text}"), location)
        return
    for number, document in enumerate(read_documents([file], ReaderConfig(text_field=text)), 1):
        yield Completion(None, document, f"{file}, document {number}")


def suffix_of(file: Path) -> str:
    """Return the suffix of a file's format in lower case, without that of a compression."""
    known = [suffix.lower() for suffix in file.suffixes if suffix.lower() not in COMPRESSED]
    return known[-1] if known else ""


def _completion(value: object, location: str) -> str:
    """Return a completion as text.

    Raises:
        VerificationError: it is neither text nor a number.
    """
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise VerificationError(f"{location}: the completion is {value!r}, which is not text")
