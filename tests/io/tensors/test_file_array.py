"""Arrays in files equal numpy arrays under transposition, slicing and reshaping."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.io.tensors import file_array
from zoo.io.tensors.file_array import DataFile, FileArray
from zoo.io.tensors.file_range import blocks, copy_range, ranges_equal

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


def pair(path: Path, shape: tuple[int, ...], dtype: str = "<f4") -> tuple[FileArray, Any]:
    """Return a random array in a file, after 3 bytes, and in memory."""
    array = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    path.write_bytes(b"abc" + array.tobytes() + b"def")
    return FileArray.stored(DataFile(path, 3 + array.nbytes), dtype, shape, 3), array


def turned(array: Any, turns: list[tuple[str, int, int]]) -> Any:
    for turn, first, second in turns:
        axes = array.ndim
        if turn == "T":
            array = array.T
        elif turn == "swap" and axes:
            array = array.swapaxes(first % axes, second % axes)
        elif turn == "slice" and axes:
            array = array[first % (len(array) + 1) : second]
        elif turn == "row" and axes and len(array):
            array = array[first % len(array)]
        elif turn == "flat":
            array = array.reshape(-1)
        elif turn == "split" and axes and array.shape[0] % 2 == 0:
            array = array.reshape((2, array.shape[0] // 2, *array.shape[1:]))
    return array


TURNS = st.lists(
    st.tuples(
        st.sampled_from(["T", "swap", "slice", "row", "flat", "split"]),
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    max_size=5,
)


@given(SHAPES, TURNS, st.sampled_from(["<f4", "<u2", "|u1"]), st.sampled_from([0, 64, 1 << 20]))
def test_views_match_numpy(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, ...],
    turns: list[tuple[str, int, int]],
    dtype: str,
    window: int,
) -> None:
    path = tmp_path_factory.mktemp("array") / "file"
    stored, expected = pair(path, shape, dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_array, "WINDOW", window)
        stored, expected = turned(stored, turns), turned(expected, turns)
        read = np.asarray(stored)
        assert read.dtype == expected.dtype and np.array_equal(read, expected)
        if isinstance(stored, FileArray):
            assert (stored.shape, stored.ndim, stored.size) == (read.shape, read.ndim, read.size)
            assert not expected.size or stored.contiguous == expected.flags.c_contiguous
            pieces = [piece.reshape(-1) for (piece,) in blocks(stored)]
            assert (
                np.concatenate(pieces or [expected.reshape(-1)]).tolist()
                == expected.ravel().tolist()
            )
            if span := stored.file_range:
                content = path.read_bytes()[span.offset : span.offset + span.length]
                assert content == expected.tobytes()


def test_errors_match_numpy(tmp_path: Path) -> None:
    stored, _ = pair(tmp_path / "file", (3, 4))
    with pytest.raises(ValueError, match="reshape"):
        stored.reshape(5, 5)
    with pytest.raises(IndexError):
        stored[3]
    with pytest.raises(ValueError, match="only a slice with step 1"):
        stored[::2]


def test_large_transposed_matrices_are_read_in_bands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zoo.io.tensors.file_range.WINDOW", 4096)
    monkeypatch.setattr(file_array, "WINDOW", 4096)
    stored, array = pair(tmp_path / "file", (96, 120))
    pieces = [(first, second) for first, second in blocks(stored.T, array.T)]
    assert len(pieces) > 20
    for first, second in pieces:
        np.testing.assert_array_equal(first, second)
    assert np.array_equal(np.concatenate([first for first, _ in pieces]), array.T)


def test_ranges_are_copied_and_compared(tmp_path: Path) -> None:
    stored, array = pair(tmp_path / "one", (40, 30))
    assert stored.file_range is not None
    with (tmp_path / "two").open("wb") as file:
        if not copy_range(stored.file_range, file.fileno()):
            pytest.skip("the file system copies nothing within the kernel")
    assert (tmp_path / "two").read_bytes() == array.tobytes()
    copied = FileArray.stored(DataFile(tmp_path / "two", 0), "<f4", (40, 30), 0)
    assert copied.file_range is not None and ranges_equal(stored.file_range, copied.file_range)
