"""Files of static word vectors: text of GloVe, word2vec and fastText, and binary ones of word2vec.

Text has a line for each word: the word, and its numbers in decimal. word2vec and fastText write a
first line with the number of words and the width; GloVe writes none. A word may contain spaces, so
that numbers are counted from the end of a line. Binary files of word2vec begin with the same line,
and have each number in float32 after its word and a space.

Vectors are computed in float64 where they are decimal, and rounded to float32, as gensim does. Of a
word that is listed twice, the first vector counts. Models of fastText (``.bin``) have no vectors of
words; see ``fasttext_model``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from zoo.errors import VerificationError
from zoo.io.files import open_regular
from zoo.io.limits import MAX_CONFIG_NUMBER, MAX_LINE_BYTES, MAX_TOKEN_ID, MAX_TOKEN_LENGTH
from zoo.io.sizes import check_size
from zoo.io.tensors.file_array import FileArray
from zoo.io.tensors.formats import STORAGE, Format, TensorInfo, TensorReader
from zoo.overrides import override
from zoo_converters.fasttext_model import is_fasttext_model, read_fasttext_words
from zoo_converters.scratch import ScratchFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TABLE = "embeddings"
# By their names, since a directory of another model may hold any text and binary file.
FILE_PATTERNS = (
    "*.vec",
    "*.w2v",
    "*glove*.txt",
    "*vectors*.bin",
    "*word2vec*.bin",
    "cc.*.bin",
    "wiki.*.bin",
)
HEADER = re.compile(rb"(\d{1,18}) (\d{1,18})\s*")
READ_BYTES = 1 << 20
UNKNOWN_WORD = "[UNK]"


class WordVectors(Format):
    """File format of a table of words and vectors."""

    name: ClassVar[str] = "word-vectors"
    self_contained: ClassVar[bool] = True

    @override
    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        matches = []
        for name in names:
            if any(fnmatchcase(name.lower(), pattern) for pattern in FILE_PATTERNS):
                matches.append(name)
        return tuple(matches) if len(matches) == 1 else ()

    @override
    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        return WordVectorsReader(directory / names[0])


class WordVectorsReader(TensorReader):
    """Reader of a file: one tensor ``embeddings``, with a last row of zeros for unknown words.

    Attributes:
        metadata: ``words``, in the order of the rows, and ``unknown_word``, the word of the last
            row.
    """

    def __init__(self, path: Path) -> None:
        self.files = (path,)
        with open_regular(path) as file:
            table = read_table(path, file)
        table.append(UNKNOWN_WORD, bytes(table.row_bytes))
        self._table = table
        words = list(table.rows)[:-1]
        if not words:
            raise VerificationError(f"{path} has no words", "fetch it again")
        self.metadata: Mapping[str, Any] = {
            "general.architecture": "word-vectors",
            "words": words,
            "unknown_word": UNKNOWN_WORD,
        }
        self.tensors: Mapping[str, TensorInfo] = {
            TABLE: TensorInfo("F32", (len(table.rows), table.width))
        }

    @override
    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        values = self.lazy(name).read()
        values.flags.writeable = False
        return values

    @override
    def lazy(self, name: str) -> FileArray:
        info = self.tensors[name]
        return self._table.scratch.lazy(STORAGE[info.dtype], info.shape)

    @override
    def close(self) -> None:
        self._table.scratch.close()


class VectorTable:
    """Vectors in a temporary file, by word.

    Args:
        path: the file that they are from, for messages.
        width: numbers of a vector.
        count: largest number of words.
    """

    def __init__(self, path: Path, width: int, count: int) -> None:
        self.path = path
        self.width = check_size(path, "width of the vectors", width, MAX_CONFIG_NUMBER, least=1)
        check_size(path, "number of words", count, MAX_TOKEN_ID)
        self.row_bytes = 4 * self.width
        self.rows: dict[str, int] = {}  # Word -> the number of its row.
        self.scratch = ScratchFile((count + 1) * self.row_bytes)  # One more for unknown words.

    def append(self, word: str, row: bytes) -> None:
        """Add a word and the bytes of its vector, unless the table has the word."""
        if word in self.rows:
            if word == UNKNOWN_WORD:
                raise VerificationError(
                    f"{self.path} has the word {UNKNOWN_WORD}, which stands for unknown words here",
                    "take it out of the file",
                )
            return
        quantity = f"number of characters of the word {word[:40]!r}"
        check_size(self.path, quantity, len(word), MAX_TOKEN_LENGTH)
        self.rows[word] = len(self.rows)
        self.scratch.file.write(row)


def read_table(path: Path, file: BinaryIO) -> VectorTable:
    """Return the words and vectors of a file of any of the kinds."""
    import os

    size = os.fstat(file.fileno()).st_size
    first_line = file.readline(MAX_LINE_BYTES)
    header = HEADER.fullmatch(first_line)
    file.seek(0)
    if is_fasttext_model(first_line):
        words, width, vectors = read_fasttext_words(path, size)
        table = VectorTable(path, width, len(words))
        for word, row in zip(words, vectors, strict=True):
            table.append(word, row)
    elif header is None:
        table = _read_text(path, file, count=None, width=len(first_line.split(b" ")) - 1)
    else:
        count, width = int(header[1]), int(header[2])
        check_size(path, "width of the vectors", width, MAX_CONFIG_NUMBER, least=1, room=size)
        room = size // (2 * width)  # A number takes a digit and a space, or four bytes.
        check_size(path, "number of words", count, MAX_TOKEN_ID, room=room)
        file.readline(MAX_LINE_BYTES)
        if _is_binary(file, width):
            table = _read_binary(path, file, count, width)
        else:
            table = _read_text(path, file, count, width)
    table.scratch.file.flush()
    return table


def _is_binary(file: BinaryIO, width: int) -> bool:
    """Return whether what follows the header is not a line of a word and its numbers."""
    position = file.tell()
    fields = file.readline(MAX_LINE_BYTES).rstrip().split(b" ")
    file.seek(position)
    if len(fields) <= width:
        return True
    try:
        [float(field) for field in fields[-width:]]
    except ValueError:
        return True
    return False


def _read_text(path: Path, file: BinaryIO, count: int | None, width: int) -> VectorTable:
    """Read lines of words and numbers.

    Args:
        path: the file, for messages.
        file: it, after its header.
        count: number of words that the header states; ``None`` without a header.
        width: numbers of a line.
    """
    import numpy as np

    first_number = 1 if count is None else 2
    if width < 1:
        raise _malformed(path, 1, "it has no numbers")
    expected = _count_lines(file) if count is None else count
    table = VectorTable(path, width, expected)
    lines = 0
    for number, line in enumerate(_lines(path, file), first_number):
        fields = line.rstrip(b"\r\n ").rsplit(b" ", width)
        if len(fields) != width + 1:
            raise _malformed(path, number, f"it has fewer than {width} numbers after a word")
        try:
            values = np.array([float(field) for field in fields[1:]])
            word = fields[0].decode("utf-8")
        except ValueError as error:  # UnicodeDecodeError is one.
            raise _malformed(path, number, str(error)) from error
        lines += 1
        if lines > expected:
            break
        table.append(word, values.astype("<f4").tobytes())
    if lines != expected:
        relation = "more" if lines > expected else f"{lines:,}"
        raise VerificationError(
            f"{path} states {expected:,} words, and has {relation}", "fetch it again"
        )
    return table


def _count_lines(file: BinaryIO) -> int:
    """Return the number of lines from here on, and go back."""
    position = file.tell()
    lines = 0
    last_block = b"\n"
    while block := file.read(READ_BYTES):
        lines += block.count(b"\n")
        last_block = block
    file.seek(position)
    return lines if last_block.endswith(b"\n") else lines + 1


def _lines(path: Path, file: BinaryIO) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE_BYTES + 1):
        check_size(path, "number of bytes of a line", len(line), MAX_LINE_BYTES)
        yield line


def _read_binary(path: Path, file: BinaryIO, count: int, width: int) -> VectorTable:
    """Read words that are followed by a space and numbers in float32."""
    table = VectorTable(path, width, count)
    for number in range(count):
        word = bytearray()
        while (byte := file.read(1)) != b" ":
            if not byte:
                raise VerificationError(
                    f"{path} states {count:,} words, and ends in number {number + 1:,}",
                    "fetch it again",
                )
            if byte != b"\n":  # Some programs end each vector with one.
                word += byte
            check_size(path, "number of bytes of a word", len(word), MAX_LINE_BYTES)
        row = file.read(table.row_bytes)
        if len(row) != table.row_bytes:
            raise VerificationError(
                f"{path} states {count:,} words, and ends in number {number + 1:,}",
                "fetch it again",
            )
        try:
            text = word.decode("utf-8")
        except UnicodeDecodeError as error:
            raise VerificationError(f"{path}: word {number + 1:,} is not UTF-8: {error}") from error
        table.append(text, row)
    if file.read(2).strip():
        raise VerificationError(f"{path} states {count:,} words, and has more", "fetch it again")
    return table


def _malformed(path: Path, number: int, problem: str) -> VerificationError:
    return VerificationError(
        f"{path}, line {number:,}: {problem}", "it is not a file of word vectors, or damaged"
    )
