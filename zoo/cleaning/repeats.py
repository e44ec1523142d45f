"""Which lines and spans of sentences occurred before, in the order of the texts.

datatrove's own step keeps the occurrence in the text that comes first in its part: the result would
depend on where files are cut into parts.
"""

import shutil
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# As datatrove writes them, sorted: a hash, the number of the text in its part, and that of the
# line, or of the first sentence of the span, in the text.
SIGNATURE = np.dtype([("hash", "<u8"), ("doc", "<u4"), ("sent", "<u2")])
POSITION = np.dtype([("doc", "<u4"), ("sent", "<u2")])
SIGNATURES_ENDING = ".c4_sig"
REPEATS_ENDING = ".c4_dup"
HASHES = 1 << 64
MAX_SIGNATURES = 1 << 21  # that are compared at once, about; they take 150 MB.
MAX_BUCKETS = 16
BUCKET_BYTES = 16 << 20  # Size of the compressed parts for each range of hashes.


def bucket_count(parts: Path) -> int:
    """Return the number of ranges of hashes that are compared apart, for a folder of parts."""
    total = sum(path.stat().st_size for path in parts.iterdir())
    return min(MAX_BUCKETS, 1 + total // BUCKET_BYTES)


class FindRepeats:
    """A step that finds the lines or spans of a bucket that occurred before.

    Args:
        signatures: directory of the hashes, with a directory for each bucket.
        repeats: directory of the positions of the lines or spans, with a file for each part.
    """

    def __init__(self, signatures: Path, repeats: Path) -> None:
        self.signatures = signatures
        self.repeats = repeats

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        """Write the positions of a bucket, for each part that has any."""
        folder = self.repeats / f"{rank:04d}"
        shutil.rmtree(folder, ignore_errors=True)  # A process that was killed may have left it.
        folder.mkdir(parents=True)
        parts = []
        names = []
        for path in sorted((self.signatures / f"{rank:04d}").glob(f"*{SIGNATURES_ENDING}")):
            if path.stat().st_size:
                parts.append(np.memmap(path, SIGNATURE, "r"))
                names.append(path.name.removesuffix(SIGNATURES_ENDING))
        first_hash = HASHES // world_size * rank
        for slices in _hash_ranges(parts, first_hash, HASHES // world_size):
            for name, positions in zip(names, _repeats(slices), strict=True):
                if len(positions):
                    with (folder / f"{name}{REPEATS_ENDING}").open("ab") as file:
                        file.write(positions.tobytes())


def _hash_ranges(
    parts: list[Any], first_hash: int, hashes: int
) -> Iterator[list[NDArray[np.void]]]:
    """Yield the signatures of each part, for ranges of hashes of which each fits into memory.

    Args:
        parts: signatures of each part, sorted.
        first_hash: the least hash of the bucket.
        hashes: number of hashes of the bucket.
    """
    total = sum(map(len, parts))
    steps = max(1, -(-total // MAX_SIGNATURES))
    starts = [0] * len(parts)
    for step in range(1, steps + 1):
        last_hash = first_hash + hashes * step // steps
        slices = []
        for number, part in enumerate(parts):
            end = len(part)
            if step < steps:
                end = bisect_right(part, last_hash, starts[number], key=_hash)
            slices.append(np.array(part[starts[number] : end]))
            starts[number] = end
        yield slices


def _hash(signature: Any) -> int:
    return int(signature["hash"])


def _repeats(slices: list[NDArray[np.void]]) -> list[NDArray[np.void]]:
    """Return the positions in each part of what occurred before, in it or in an earlier one."""
    if not slices:
        return []
    signatures = np.concatenate(slices)
    # The order is that of the parts and of the texts in them, which a stable sort keeps.
    order = np.argsort(signatures["hash"], kind="stable")
    hashes = signatures["hash"][order]
    is_repeat = np.zeros(len(signatures), bool)
    is_repeat[order[1:]] = hashes[1:] == hashes[:-1]
    positions = np.zeros(len(signatures), POSITION)
    positions["doc"] = signatures["doc"]
    positions["sent"] = signatures["sent"]
    ends = np.cumsum([len(part) for part in slices])
    repeats = []
    for part, end in zip(slices, ends, strict=True):
        start = end - len(part)
        repeats.append(positions[start:end][is_repeat[start:end]])
    return repeats
