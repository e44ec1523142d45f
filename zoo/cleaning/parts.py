"""The texts between two stages, as parts: compressed JSON lines, one part for each task."""

import gzip
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from datatrove.data import Document

from zoo.data.readers.documents import ReaderConfig, read_documents
from zoo.data.readers.text_io import read_lines
from zoo.io.json import JsonStruct, encode_json
from zoo.io.output.atomic import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable

COMPRESSION_LEVEL = 3
SUFFIX = ".jsonl.gz"


def part_name(task: int) -> str:
    """Return the file name of the part of a task."""
    return f"{task:05d}{SUFFIX}"


class PartCounts(JsonStruct):
    """What a part has."""

    texts: int = 0
    characters: int = 0


class ReadTexts:
    """The first step of the first stage: the texts of a file of the input.

    Args:
        files: the files, one for each task.
        names: how a text names its file.
        reader: separation of files into texts.
    """

    def __init__(self, files: Sequence[Path], names: Sequence[str], reader: ReaderConfig) -> None:
        self.files = list(files)
        self.names = list(names)
        self.reader = reader

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Yield the texts of a task, each with the name and the number that it has in its file."""
        texts = read_documents([self.files[rank]], self.reader)
        for number, text in enumerate(texts, 1):
            yield Document(text=text, id=f"{self.names[rank]}:{number}")


class ReadPart:
    """The first step of a later stage: the texts of a part.

    Args:
        folder: directory of the parts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Yield the texts of a task."""
        for line in read_lines(self.folder / part_name(rank), rows=True):
            if line:
                row = msgspec.json.decode(line)
                yield Document(text=row["text"], id=row["id"])


class WritePart:
    """The last step of a stage: a part, which has its name when it is complete.

    Args:
        folder: directory of the parts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self, data: "Iterable[Document]", rank: int = 0, world_size: int = 1
    ) -> Iterator[Document]:
        """Write the texts of a task, and yield them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / part_name(rank)
        unfinished = path.with_name(f"{path.name}.part")
        counts = PartCounts()
        with (
            unfinished.open("wb") as raw,
            gzip.GzipFile("", "wb", COMPRESSION_LEVEL, raw, mtime=0) as file,
        ):
            for document in data:
                row = {"text": document.text, "id": document.id}
                file.write(msgspec.json.encode(row) + b"\n")
                counts.texts += 1
                counts.characters += len(document.text)
                yield document
        os.replace(unfinished, path)
        atomic_write(counts_path(self.folder, rank), encode_json(counts))


def counts_path(folder: Path, task: int) -> Path:
    """Return the file with the counts of a part."""
    return folder / f"{task:05d}.json"
