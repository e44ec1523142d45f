"""What texts are like before anybody trains on them: lengths, languages, duplicates, tokens."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from blake3 import blake3
from tokenizers import Tokenizer

from zoo.cleaning.rules.language import load_identification
from zoo.data.encoding import DocumentTokenizer, chunks
from zoo.data.readers.documents import ReaderConfig, expand_paths, read_documents
from zoo.data.tokenizer import ExistingTokenizer
from zoo.errors import SourceError
from zoo.io.json import JsonStruct
from zoo.io.progress import progress_of_files

# Texts and lines are compared by hashes of 64 bits. Once there are more hashes than this, only
# those of a part of all hashes are kept, which is halved each time it is full: all occurrences of
# a text are kept or none, so that the fraction of duplicates is that of a sample.
MAX_HASHES = 1 << 21
MAX_LINES = 1 << 18  # Different lines that are counted; rare ones are dropped when it is full.
SAMPLE_CHARACTERS = 10_000_000  # that are tokenized and whose language is identified
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
SHOWN_LINES = 10
LINE_CHARACTERS = 80


class TokenStatistics(JsonStruct):
    """How a tokenizer encodes a sample of the texts.

    Attributes:
        bytes: number of bytes of the sample in UTF-8.
        tokens: number of tokens, without special ones.
        tokens_per_byte: number of tokens for each byte.
        unknown: fraction of the tokens that are unknown.
    """

    bytes: int
    tokens: int
    tokens_per_byte: float
    unknown: float


class TextStatistics(JsonStruct):
    """What texts are like.

    Attributes:
        texts: number of texts.
        characters: number of characters.
        bytes: number of bytes in UTF-8.
        lengths: quantile -> characters of a text, in their order.
        duplicate_texts: fraction of the texts that occurred before.
        duplicate_lines: fraction of the lines that occurred before.
        frequent_lines: the most frequent lines of several words, with their numbers.
        languages: language -> fraction of the characters of a sample; empty without a model.
        tokens: how a tokenizer encodes a sample; ``None`` without one.
    """

    texts: int
    characters: int
    bytes: int
    lengths: dict[str, int]
    duplicate_texts: float
    duplicate_lines: float
    frequent_lines: list[tuple[str, int]]
    languages: dict[str, float] = msgspec.field(default_factory=dict)
    tokens: TokenStatistics | None = None


@dataclass
class Duplicates:
    """Counts what occurred before, in a bounded memory.

    Attributes:
        max_hashes: largest number of hashes that are kept.
    """

    max_hashes: int = MAX_HASHES
    _limit: int = 1 << 64  # Hashes below it are kept.
    _counts: Counter[int] = field(default_factory=Counter)

    def add(self, text: str) -> None:
        """Count a text."""
        value = int.from_bytes(blake3(text.encode()).digest(length=8), "little")
        if value >= self._limit:
            return
        self._counts[value] += 1
        while len(self._counts) > self.max_hashes:
            self._limit //= 2
            self._counts = Counter(
                {key: count for key, count in self._counts.items() if key < self._limit}
            )

    def fraction(self) -> float:
        """Return the fraction of the texts that occurred before."""
        total = self._counts.total()
        return 1 - len(self._counts) / total if total else 0.0


class FrequentLines:
    """Counts lines in a bounded memory: rare ones are dropped when it is full."""

    def __init__(self, max_lines: int = MAX_LINES) -> None:
        self.max_lines = max_lines
        self._counts: Counter[str] = Counter()
        self._smallest = 1  # Lines with fewer occurrences are dropped.

    def add(self, line: str) -> None:
        """Count a line."""
        self._counts[line[:LINE_CHARACTERS]] += 1
        while len(self._counts) > self.max_lines:
            self._smallest += 1
            self._counts = Counter(
                {key: count for key, count in self._counts.items() if count >= self._smallest}
            )

    def most_common(self, number: int) -> list[tuple[str, int]]:
        """Return the most frequent lines that occur more than once."""
        return [(line, count) for line, count in self._counts.most_common(number) if count > 1]


def inspect_texts(
    paths: Sequence[str | Path],
    reader: ReaderConfig,
    *,
    tokenizer: ExistingTokenizer | None = None,
    language_model: Path | None = None,
) -> TextStatistics:
    """Read texts once, and return what they are like.

    Args:
        paths: files, directories and patterns.
        reader: separation of files into texts.
        tokenizer: encodes a sample.
        language_model: model of fastText, which identifies the languages of a sample.
    """
    files = expand_paths(paths)
    lengths = array("Q")
    total_bytes = 0
    texts = Duplicates()
    lines = Duplicates()
    frequent_lines = FrequentLines()
    sample = _Sample(SAMPLE_CHARACTERS)
    with progress_of_files("reading", files):
        for text in read_documents(files, reader):
            lengths.append(len(text))
            total_bytes += len(text.encode())
            texts.add(text)
            sample.add(text)
            for line in text.split("\n"):
                stripped_line = line.strip()
                if stripped_line:
                    lines.add(stripped_line)
                    frequent_lines.add(stripped_line)
    if not lengths:
        raise SourceError(f"there is no text in {', '.join(map(str, paths))}", "give texts")
    sizes = np.frombuffer(lengths, np.uint64)
    quantiles = np.quantile(sizes, QUANTILES, method="inverted_cdf")
    return TextStatistics(
        texts=len(sizes),
        characters=int(sizes.sum()),
        bytes=total_bytes,
        lengths={f"{q:g}": int(size) for q, size in zip(QUANTILES, quantiles, strict=True)},
        duplicate_texts=texts.fraction(),
        duplicate_lines=lines.fraction(),
        frequent_lines=frequent_lines.most_common(SHOWN_LINES),
        languages={} if language_model is None else _languages(sample, language_model),
        tokens=None if tokenizer is None else _tokens(sample, tokenizer),
    )


class _Sample:
    """Texts of up to a number of characters, every second, fourth, ... one when it is full."""

    def __init__(self, max_characters: int) -> None:
        self.max_characters = max_characters
        self._texts: list[str] = []
        self._characters = 0
        self._step = 1
        self._number = 0

    def add(self, text: str) -> None:
        if self._number % self._step == 0:
            self._texts.append(text)
            self._characters += len(text)
        self._number += 1
        while self._characters > self.max_characters and len(self._texts) > 1:
            self._texts = self._texts[::2]
            self._characters = sum(map(len, self._texts))
            self._step *= 2

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


def _languages(sample: _Sample, path: Path) -> dict[str, float]:
    """Return the fraction of the characters of each language, the most frequent first."""
    identify = load_identification(str(path))
    characters: Counter[str] = Counter()
    for text in sample:
        characters[next(iter(identify(text)), "unknown")] += len(text)
    total = characters.total()
    return {language: count / total for language, count in characters.most_common()}


def _tokens(sample: _Sample, existing: ExistingTokenizer) -> TokenStatistics:
    encoder = DocumentTokenizer(existing.json, existing.info, "line", "uint32")
    unknown_token = existing.info.special.get("unk", "")
    unknown_id = Tokenizer.from_buffer(existing.json).token_to_id(unknown_token)
    size = 0
    tokens = 0
    unknown = 0
    for texts in chunks(sample):
        encoded = encoder.encode(texts)
        size += sum(len(text.encode()) for text in texts)
        tokens += len(encoded.tokens)
        if unknown_id is not None:
            unknown += int((encoded.tokens == unknown_id).sum())
    return TokenStatistics(
        bytes=size, tokens=tokens, tokens_per_byte=tokens / size, unknown=unknown / max(tokens, 1)
    )
