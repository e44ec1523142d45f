"""Reader of texts for causal language models: documents, or prompts with completions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zoo.data.readers.documents import ReaderConfig, iter_files, read_documents
from zoo.data.readers.labelled import Columns, Sample, iter_samples, label_texts, text_hash
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.data.readers.tables import read_table, suffix_of
from zoo.inference.likelihood import move_spaces

TABLES = (".tsv", ".csv")


@dataclass(frozen=True, slots=True)
class Completion:
    """A text whose end is predicted from its beginning."""

    prompt: str | None  # ``None`` for a document, whose tokens are all predicted.
    text: str  # The rest.
    location: str  # File and line, or number of the document, for messages.
    alternatives: tuple[str, ...] = ()  # Further completions that are correct.

    @property
    def references(self) -> tuple[str, ...]:
        """All correct completions."""
        return (self.text, *self.alternatives)

    @property
    def label(self) -> str | list[str]:
        """The completion, or a list of several, as rows of reports have them."""
        return list(self.references) if self.alternatives else self.text

    @property
    def hash(self) -> float:
        """Hash of the prompt or document, which splits data."""
        return text_hash(self.text if self.prompt is None else self.prompt)


def read_completions(
    paths: Iterable[str | Path],
    text: str,
    label: str | None = None,
    problems: RowProblems | None = None,
) -> list[Completion]:
    """Return prompts with completions from tables, or documents.

    Without a label's column, texts are documents, separated by blank lines as in
    ``read_documents``; each row of a TSV or CSV table is one.
    """
    if label is not None:
        return list(iter_completions(paths, text, label, problems))
    reading = ReaderConfig(text_field=text)
    return list(
        iter_files(
            paths,
            lambda file, found: (
                Completion(None, document, location)
                for document, location in texts_of(file, reading, "document", found)
            ),
            problems,
            "text",
            "give a file with text",
        )
    )


def iter_completions(
    paths: Iterable[str | Path], text: str, label: str, problems: RowProblems | None = None
) -> Iterator[Completion]:
    """Yield prompts with completions from tables; see ``read_completions``."""
    all_problems = RowProblems() if problems is None else problems
    yield from all_problems.checked(
        iter_samples(paths, Columns(text, label), all_problems), _completion
    )
    if problems is None:
        all_problems.require_none()


def texts_of(
    file: Path, reading: ReaderConfig, name: str, problems: RowProblems
) -> Iterator[tuple[str, str]]:
    """Yield the texts of a file, rows of a table or documents, with their locations."""
    field = reading.text_field
    if suffix_of(file) in TABLES:
        for row in read_table(file, [field], problems):
            yield row.values[field], row.location
        return
    for number, text in enumerate(read_documents([file], reading, problems), 1):
        yield text, f"{file}, {name} {number}"


def _completion(sample: Sample) -> Completion:
    """Return a sample whose label is a completion, or a list of correct ones."""
    text, *alternatives = label_texts(sample.label, sample.location, "completion")
    return Completion(sample.text, text, sample.location, tuple(alternatives))


def review_completion(sample: Completion) -> Reviewed:
    """Return what is reviewed of a prompt with its completion, or of a document."""
    texts = [sample.text if sample.prompt is None else sample.prompt]
    return Reviewed(texts, None, identity=(sample.prompt, sample.text))


def prompt_of(sample: Completion) -> str:
    """Return the text that a completion is generated for.

    Spaces at the end of a prompt belong to the completion, as in its loss.
    """
    prompt, _ = move_spaces(sample.prompt or "", sample.text)
    return prompt
