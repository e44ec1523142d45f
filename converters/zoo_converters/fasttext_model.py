"""Vectors of words of a fastText model (``.bin``).

The vector of a word is the mean of the rows of its *subwords*: the word itself, and its n-grams of
characters between ``<`` and ``>``, which are hashed into buckets (Bojanowski et al. 2017,
arXiv:1607.04606, section 3.2; ``Dictionary::computeSubwords`` and ``FastText::getWordVector`` of
the released code). The table of static vectors has the words of the dictionary only; fastText
itself also has vectors for other words.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.errors import UsageError, VerificationError
from zoo.io.files import open_regular
from zoo.io.limits import MAX_CONFIG_NUMBER, MAX_TOKEN_ID
from zoo.io.sizes import check_size
from zoo.io.tensors.file_array import DataFile, FileArray

if TYPE_CHECKING:
    pass

MAGIC = struct.pack("<i", 793712314)
VERSION = 12
ARGUMENTS = struct.Struct("<12id")
DICTIONARY = struct.Struct("<iiiqq")
ENTRY = struct.Struct("<qb")
WORD = 0  # The kind of an entry that is not a label.
END_OF_SENTENCE = "</s>"
MAX_NGRAM_LENGTH = 100
MAX_WORD_BYTES = 1 << 16


class _Header(NamedTuple):
    words: list[str]
    width: int
    buckets: int
    shortest: int  # Characters of the shortest n-grams, with the marks around a word; 0 for none.
    longest: int


def is_fasttext_model(beginning: bytes) -> bool:
    """Return whether a file begins as models of fastText do."""
    return beginning.startswith(MAGIC)


def read_fasttext_words(path: Path, size: int) -> tuple[list[str], int, Iterator[bytes]]:
    """Return the words of a model, the width of its vectors, and the vectors in float32.

    Args:
        path: the model.
        size: bytes of the file.
    """
    header, position = _read_header(path, size)
    file = DataFile(path, size)
    with open_regular(path) as stream:
        stream.seek(position)
        is_quantized = stream.read(1) != b"\0"
        if is_quantized:
            raise UsageError(
                f"{path} is a quantized model of fastText, whose vectors are approximations",
                "give the model that it was made from",
            )
        rows, width = struct.unpack("<qq", _read(path, stream, 16))
    if rows != len(header.words) + header.buckets or width != header.width:
        raise VerificationError(
            f"{path} has a table of {rows:,} rows of {width:,} numbers, for "
            f"{len(header.words):,} words, {header.buckets:,} buckets and vectors of "
            f"{header.width:,} numbers",
            "models that were pruned are not read; else fetch it again",
        )
    check_size(path, "number of rows", rows, MAX_TOKEN_ID * 2, room=size // (4 * width))
    table = FileArray.stored(file, "<f4", (rows, width), position + 17)
    return header.words, width, _vectors(header, table)


def _read_header(path: Path, size: int) -> tuple[_Header, int]:
    """Return the header, and the position after it."""
    with open_regular(path) as file:
        file.read(len(MAGIC))
        (version,) = struct.unpack("<i", _read(path, file, 4))
        if version != VERSION:
            raise VerificationError(
                f"{path} is of version {version} of fastText's format, and {VERSION} is read"
            )
        arguments = ARGUMENTS.unpack(_read(path, file, ARGUMENTS.size))
        width, buckets, shortest, longest = (arguments[index] for index in (0, 8, 9, 10))
        check_size(path, "width of the vectors", width, MAX_CONFIG_NUMBER, least=1, room=size)
        check_size(path, "number of buckets", buckets, MAX_TOKEN_ID, room=size)
        check_size(path, "length of n-grams", longest, MAX_NGRAM_LENGTH)
        check_size(path, "length of n-grams", shortest, MAX_NGRAM_LENGTH)
        entries, word_count, _, _, pruned = DICTIONARY.unpack(_read(path, file, DICTIONARY.size))
        check_size(path, "number of words", entries, MAX_TOKEN_ID, room=size)
        if pruned >= 0:
            raise UsageError(f"{path} is a model of fastText that was pruned", "give the whole one")
        words = []
        for _ in range(entries):
            name = bytearray()
            while (byte := file.read(1)) != b"\0":
                if not byte or len(name) > MAX_WORD_BYTES:
                    raise VerificationError(f"{path} ends in its dictionary", "fetch it again")
                name += byte
            _, kind = ENTRY.unpack(_read(path, file, ENTRY.size))
            if kind == WORD:
                words.append(_decode(path, bytes(name)))
        if len(words) != word_count:
            raise VerificationError(
                f"{path} states {word_count:,} words, and has {len(words):,}", "fetch it again"
            )
        return _Header(words, width, buckets, shortest, longest), file.tell()


def _decode(path: Path, word: bytes) -> str:
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError as error:
        raise VerificationError(f"{path}: the word {word!r:.60} is not UTF-8") from error


def _read(path: Path, file: Any, length: int) -> bytes:
    content: bytes = file.read(length)
    if len(content) != length:
        raise VerificationError(f"{path} ends in its header", "fetch it again")
    return content


def _vectors(header: _Header, table: FileArray) -> Iterator[bytes]:
    """Yield the vector of each word, added in the order of its subwords in float32."""
    import numpy as np

    values = table.read()
    for number, word in enumerate(header.words):
        rows = [number]
        if word != END_OF_SENTENCE and header.buckets:
            for bucket in ngram_buckets(word, header.shortest, header.longest, header.buckets):
                rows.append(len(header.words) + bucket)
        total = np.zeros(header.width, np.float32)
        for row in rows:
            total += values[row]
        total *= np.float32(1.0 / len(rows))
        yield total.tobytes()


def ngram_buckets(word: str, shortest: int, longest: int, buckets: int) -> list[int]:
    """Return the buckets of the n-grams of a word.

    N-grams of one character do not count at the marks around the word.

    Args:
        word: the word.
        shortest: characters of the shortest n-grams.
        longest: characters of the longest ones; 0 for none.
        buckets: number of buckets.
    """
    marked = f"<{word}>"
    numbers = []
    for start in range(len(marked)):
        for length in range(1, longest + 1):
            end = start + length
            if end > len(marked):
                break
            is_mark = length == 1 and (start == 0 or end == len(marked))
            if length >= shortest and not is_mark:
                numbers.append(_hash(marked[start:end].encode()) % buckets)
    return numbers


def _hash(text: bytes) -> int:
    """Return FNV-1a of bytes that are signed, as the released code has it."""
    value = 2166136261
    for byte in text:
        signed = byte - 256 if byte > 127 else byte
        value = ((value ^ (signed & 0xFFFFFFFF)) * 16777619) & 0xFFFFFFFF
    return value
