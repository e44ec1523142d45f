"""Lines and spans that occurred before."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from zoo.cleaning import repeats
from zoo.cleaning.repeats import HASHES, POSITION, SIGNATURE, FindRepeats

Occurrence = tuple[int, int, int, int]  # part, text, line, hash


def write_signatures(folder: Path, occurrences: Sequence[Occurrence], buckets: int) -> None:
    """Write hashes as datatrove does: sorted, a file for each bucket and part."""
    for bucket in range(buckets):
        for part in range(4):
            rows = []
            for number, text, line, value in occurrences:
                if number == part and value * buckets // HASHES == bucket:
                    rows.append((value, text, line))
            path = folder / f"{bucket:04d}" / f"{part:05d}.c4_sig"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.array(sorted(rows), SIGNATURE).tofile(path)


@pytest.mark.parametrize(("buckets", "at_once"), [(1, 1 << 20), (1, 7), (4, 7), (4, 1 << 20)])
def test_all_but_the_first_occurrence_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int, at_once: int
) -> None:
    monkeypatch.setattr(repeats, "MAX_SIGNATURES", at_once)
    generator = random.Random(5)
    hashes = [0, HASHES - 1, *(generator.randrange(HASHES) for _ in range(30))]
    occurrences = []
    for part in (0, 1, 3):  # The third part has no lines.
        for text in range(8):
            for line in range(generator.randrange(5)):
                occurrences.append((part, text, line, generator.choice(hashes)))
    expected = set()
    seen = set()
    for part, text, line, value in occurrences:
        if value in seen:
            expected.add((part, text, line))
        seen.add(value)
    write_signatures(tmp_path / "signatures", occurrences, buckets)
    positions = []
    for bucket in range(buckets):
        find = FindRepeats(tmp_path / "signatures", tmp_path / "repeats")
        find(None, bucket, buckets)
        find(None, bucket, buckets)  # A task that was killed is started again.
    for path in (tmp_path / "repeats").glob("*/*.c4_dup"):
        part = int(path.name.removesuffix(".c4_dup"))
        positions += [(part, int(text), int(line)) for text, line in np.fromfile(path, POSITION)]
    assert len(expected) > 10
    assert len(positions) == len(set(positions))
    assert set(positions) == expected
