"""Deduplication of runs of words, wherever they begin.

Lee et al. (2022, arXiv:2107.06499, section 4.1) find equal substrings of 50 tokens or more by a
suffix array. A repeated run of words is found here by equal hashes of 50 words, sorted in buckets,
which needs no array of the whole corpus in memory. The first occurrence is kept, where their
released code leaves the choice to its user. Two different runs have the same hash of 64 bits with
a probability of 1e-5 for 10^7 runs, and 0.1 for 10^9.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from datatrove.data import Document

RUN_WORDS = 50
BUCKETS = 16
# A hash of a run, the number of its text in the part, and the number of its first word.
RUN = np.dtype([("hash", "<u8"), ("text", "<u4"), ("word", "<u4")])
FACTOR = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64
WORD = re.compile(r"\S+")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and the end of each word of a text; words are separated by white space."""
    return [match.span() for match in WORD.finditer(text)]


def hash_runs(words: list[str], length: int = RUN_WORDS) -> NDArray[np.uint64]:
    """Return a hash of each run of so many words, modulo 2^64, uint64.

    The hash of the words w of a run is the sum of h(w_j) f^j, with a hash h of a word and an odd
    factor f. It is the difference of two prefix sums, divided by a power of f.
    """
    import xxhash

    count = len(words) - length + 1
    if count < 1:
        return np.zeros(0, np.uint64)
    hashes = np.fromiter((xxhash.xxh64_intdigest(word) for word in words), np.uint64, len(words))
    powers = np.full(len(words), FACTOR, np.uint64)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    sums = np.zeros(len(words) + 1, np.uint64)
    np.cumsum(hashes * powers, out=sums[1:])
    inverse_powers = np.full(count, pow(FACTOR, -1, 1 << 64), np.uint64)
    inverse_powers[0] = 1
    np.multiply.accumulate(inverse_powers, out=inverse_powers)
    result: NDArray[np.uint64] = (sums[length:] - sums[:count]) * inverse_powers
    return result


class HashRuns:
    """A step that writes the hashes of all runs of a part, a file for each bucket.

    Args:
        folder: directory of the hashes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self, data: "Iterable[Document]", rank: int = 0, world_size: int = 1
    ) -> "Iterator[Document]":
        """Write the hashes of a task."""
        paths = [_hash_path(self.folder, bucket, rank) for bucket in range(BUCKETS)]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        files = [path.open("wb") for path in paths]
        try:
            for number, document in enumerate(data):
                words = [document.text[start:end] for start, end in word_spans(document.text)]
                hashes = hash_runs(words)
                runs = np.zeros(len(hashes), RUN)
                runs["hash"] = hashes
                runs["text"] = number
                runs["word"] = np.arange(len(hashes))
                buckets = (hashes >> np.uint64(32)) % np.uint64(BUCKETS)
                for bucket, file in enumerate(files):
                    file.write(runs[buckets == bucket].tobytes())
                yield document
        finally:
            for file in files:
                file.close()


class FindRuns:
    """A step that finds the runs of a bucket that occurred before.

    Args:
        hashes: directory of the hashes.
        repeats: directory of the runs that are found, a file for each part.
    """

    def __init__(self, hashes: Path, repeats: Path) -> None:
        self.hashes = hashes
        self.repeats = repeats

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        """Write the runs of a bucket that occurred before, for each part."""
        paths = sorted(_hash_path(self.hashes, rank, 0).parent.iterdir())
        parts = [np.fromfile(path, RUN) for path in paths]
        runs = np.concatenate(parts)
        numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        # The order of the runs is that of the texts, which a stable sort keeps.
        order = np.argsort(runs["hash"], kind="stable")
        hashes = runs["hash"][order]
        is_repeat = np.zeros(len(runs), bool)
        is_repeat[order[1:]] = hashes[1:] == hashes[:-1]
        folder = self.repeats / f"{rank:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        for number, path in enumerate(paths):
            selected = runs[is_repeat & (numbers == number)]
            selected.tofile(folder / path.name)


class RemoveRuns:
    """A step that removes the runs that occurred before from the texts of a part.

    Args:
        repeats: directory of these runs.
    """

    def __init__(self, repeats: Path) -> None:
        self.repeats = repeats

    def __call__(
        self, data: "Iterable[Document]", rank: int = 0, world_size: int = 1
    ) -> "Iterator[Document]":
        """Yield the texts of a task, without those of which nothing is left."""
        paths = [_hash_path(self.repeats, bucket, rank) for bucket in range(BUCKETS)]
        runs = np.concatenate([np.fromfile(path, RUN) for path in paths])
        runs = runs[np.argsort(runs["text"], kind="stable")]
        numbers = np.arange(int(runs["text"].max(initial=0)) + 2)
        starts = np.searchsorted(runs["text"], numbers)
        for number, document in enumerate(data):
            if number < len(starts) - 1 and starts[number] < starts[number + 1]:
                first_words = runs["word"][starts[number] : starts[number + 1]]
                document.text = remove_words(document.text, first_words)
            if document.text:
                yield document


def remove_words(text: str, first_words: NDArray[np.uint32], length: int = RUN_WORDS) -> str:
    """Return a text without the runs that begin with these words, numbers of words, uint32."""
    starts = [start for start, _ in word_spans(text)]
    is_removed = np.zeros(len(starts), bool)
    for word in first_words:
        is_removed[word : word + length] = True
    ends = [*starts[1:], len(text)]  # A word goes with the white space after it.
    pieces = []
    for start, end, removed in zip(starts, ends, is_removed, strict=True):
        if not removed:
            pieces.append(text[start:end])
    return "".join(pieces).strip()


def _hash_path(folder: Path, bucket: int, task: int) -> Path:
    return folder / f"{bucket:03d}" / f"{task:05d}.runs"
