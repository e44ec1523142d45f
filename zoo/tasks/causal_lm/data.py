"""Reader of texts for causal language models: documents, or prompts with completions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zoo.data.readers.documents import ReaderConfig, iter_files, read_documents
from zoo.data.readers.labelled import Columns, Sample, iter_samples, text_hash
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import Reviewed
from zoo.data.readers.tables import read_table, suffix_of

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
    paths: Iterable[str | Path],
    text: str,
    label: str | None = None,
    problems: RowProblems | None = None,
) -> list[Completion]:
    """Return prompts with completions from tables, or documents.

    Documents are read as ``read_documents`` does, blank lines between them; of tables with tabs or
    commas, each row is one.

    Args:
        paths: files, directories or patterns.
        text: column of the prompt, or of the document.
        label: column of the completion; ``None`` for documents.
        problems: see ``zoo.data.readers.labelled.read_samples``.

    Raises:
        ZooError: see there.
    """
    if label is not None:
        return list(iter_completions(paths, text, label, problems))
    return list(
        iter_files(
            paths,
            lambda file, found: _documents(file, text, found),
            problems,
            "text",
            "give a file with text",
        )
    )


def iter_completions(
    paths: Iterable[str | Path], text: str, label: str, problems: RowProblems | None = None
) -> Iterator[Completion]:
    """Yield prompts with completions from tables; see ``read_completions``."""
    found = RowProblems() if problems is None else problems
    yield from found.checked(iter_samples(paths, Columns(text, label), found), _completion)
    if problems is None:
        found.require_none()


def _documents(file: Path, text: str, problems: RowProblems) -> Iterator[Completion]:
    for document, location in texts_of(file, ReaderConfig(text_field=text), "document", problems):
        yield Completion(None, document, location)


def texts_of(
    file: Path, reading: ReaderConfig, name: str, problems: RowProblems
) -> Iterator[tuple[str, str]]:
    """Yield the texts of a file with their locations: rows of a table, or documents.

    Args:
        file: a file.
        reading: separation of documents, and the column of the text.
        name: what a document is called in locations.
        problems: gets the rows that cannot be used.
    """
    field = reading.text_field
    if suffix_of(file) in TABLES:
        for location, values in read_table(file, [field], problems):
            yield values[field], location
        return
    for number, text in enumerate(read_documents([file], reading, problems), 1):
        yield text, f"{file}, {name} {number}"


def _completion(sample: Sample) -> Completion:
    """Return a sample whose label, text or a number, is a completion."""
    value, location = sample.label, sample.location
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return Completion(sample.text, str(value), location)
    raise RowError(f"{location}: the completion is {value!r:.200}, which is not text")


def review_completion(sample: Completion) -> Reviewed:
    """Return what is reviewed of a prompt with its completion, or of a document."""
    texts = [sample.text if sample.prompt is None else sample.prompt]
    return Reviewed(texts, None, whole=(sample.prompt, sample.text))
