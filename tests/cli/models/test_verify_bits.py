"""Detection of single flipped bits in every file of a checkpoint and an export."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from zoo.conformance.verify import verify
from zoo.errors import SourceError, VerificationError

KINDS = ("model", "export")


@pytest.fixture
def directory(small_export: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of one of them, to be modified."""
    shutil.copytree(small_export / request.param, tmp_path / request.param)
    return tmp_path / str(request.param)


def finding(path: Path) -> str:
    """Return the first problem that a verification reports, without the slower later checks."""
    try:
        return next((c.detail for c in verify(path, reference=False) if c.outcome != "ok"), "")
    except (SourceError, VerificationError) as error:
        return str(error)


def positions(path: Path, count: int) -> list[tuple[Path, int]]:
    """Draw pairs of file and bit, each file equally often, so that small files are covered.

    The model card of an export may be edited.
    """
    random = np.random.default_rng(7)
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.name != "README.md")
    drawn = [files[k % len(files)] for k in range(count)]
    return [(file, int(random.integers(8 * file.stat().st_size))) for file in drawn]


def flip_bits(path: Path, count: int, find: Callable[[Path], str] = finding) -> list[str]:
    """Flip single bits; return those that are not detected, or with another file's name."""
    missed = []
    for file, bit in positions(path, count):
        content = bytearray(file.read_bytes())
        content[bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)
        if file.name not in (message := find(path)) or "\n" in message:
            missed.append(f"bit {bit} of {file.name}: {message!r}")
        content[bit // 8] ^= 1 << bit % 8
        file.write_bytes(content)
    return missed


@pytest.mark.parametrize("directory", KINDS, indirect=True)
def test_a_flipped_bit_is_found_and_named(directory: Path) -> None:
    assert flip_bits(directory, 60) == []
    assert finding(directory) == ""


@pytest.mark.promise("bit-flip", cases=1_000)
@pytest.mark.long
@pytest.mark.parametrize("directory", KINDS, indirect=True)
def test_a_thousand_flipped_bits_are_found_and_named(directory: Path) -> None:
    assert flip_bits(directory, 1000) == []


@pytest.mark.parametrize("directory", KINDS, indirect=True)
def test_every_bit_of_the_manifest(directory: Path) -> None:
    """Without a digest of the manifest itself, many flips would give another valid value."""
    manifest = directory / "zoo.json"
    content = manifest.read_bytes()
    start = content.index(b'"licence"') + 12
    for bit in range(8 * start, 8 * (start + 10)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        manifest.write_bytes(changed)
        assert "zoo.json" in finding(directory), bit
