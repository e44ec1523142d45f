"""Reader of plain sentences: a line of a text file, or a column of a table."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from zoo.data.readers.documents import ReaderConfig, iter_files
from zoo.data.readers.problems import RowProblems
from zoo.finetuning.embeddings.data import TextGroup
from zoo.tasks.causal_lm.data import texts_of


def read_sentences(
    paths: Iterable[str | Path], column: str, problems: RowProblems | None = None
) -> list[TextGroup]:
    """Return the sentences of files: lines of text, or a column of tables."""
    reading = ReaderConfig(document_separator="line", text_field=column)

    def sentences(file: Path, file_problems: RowProblems) -> Iterator[TextGroup]:
        for text, location in texts_of(file, reading, "text", file_problems):
            yield TextGroup((text,), None, location)

    return list(iter_files(paths, sentences, problems, "text", "give a file with text"))
