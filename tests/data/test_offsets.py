"""Offsets that are read from their file equal those of an array."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from zoo.data.offsets import OffsetReader, map_apart
from zoo.errors import SourceError

OFFSETS = np.array([0, 3, 3, 9, 1 << 40, (1 << 62) + 1], dtype=np.int64)


@pytest.fixture
def on_disk(tmp_path: Path) -> np.memmap:
    """A map of a file that begins with a header."""
    path = tmp_path / "offsets.npy"
    np.save(path, OFFSETS)
    offsets: np.memmap = np.load(path, mmap_mode="r")
    assert offsets.offset > 0
    return offsets


def test_offsets_of_a_file(on_disk: np.memmap) -> None:
    for offsets in (on_disk, OFFSETS):
        reader = OffsetReader(offsets)
        assert len(reader) == len(OFFSETS)
        assert [reader[index] for index in range(len(OFFSETS))] == OFFSETS.tolist()
        assert reader.pair(3) == (9, 1 << 40)
        assert [reader.count_up_to(value) for value in (-1, 0, 3, 8, 1 << 62)] == [0, 1, 3, 3, 5]


def test_a_search_in_many_offsets(tmp_path: Path) -> None:
    offsets = np.sort(np.random.default_rng(0).integers(0, 3000, 2000))
    np.save(tmp_path / "offsets.npy", offsets)
    on_disk = OffsetReader(np.load(tmp_path / "offsets.npy", mmap_mode="r"))
    values = np.arange(-1, 3001)
    expected = np.searchsorted(offsets, values, side="right").tolist()
    assert [on_disk.count_up_to(value) for value in values.tolist()] == expected


def test_the_file_is_closed_with_its_reader(on_disk: np.memmap) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reader = OffsetReader(on_disk)
        file = reader._file
        assert file is not None
        assert not file.closed
        del reader
        assert file.closed


def test_parts_have_maps_of_their_own(on_disk: np.memmap) -> None:
    for offsets in (on_disk, OFFSETS):
        assert map_apart(offsets, 1, 4).tolist() == [3, 3, 9]
    part = map_apart(on_disk, 2, 5)
    assert isinstance(part, np.memmap)
    assert part._mmap is not on_disk._mmap  # type: ignore[attr-defined]


def test_a_file_that_has_become_shorter(on_disk: np.memmap) -> None:
    """An error in place of a signal, which reading the map would end with."""
    reader = OffsetReader(on_disk)
    assert on_disk.filename is not None
    path = Path(on_disk.filename)
    path.write_bytes(path.read_bytes()[:-16])
    assert reader[3] == 9
    with pytest.raises(SourceError, match=r"offsets\.npy: offset 5 is missing"):
        reader[5]
    with pytest.raises(SourceError, match="has become shorter"):
        reader.pair(3)
