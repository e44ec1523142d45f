"""Checkpoints of flat arrays, and refused files."""

import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.converters.making import written
from zoo.errors import SourceError, VerificationError, ZooError
from zoo.io.tensors.file_array import FileArray
from zoo.io.tensors.formats import TensorReader
from zoo.weights.releases import ReleaseTensor, RenamingReader
from zoo_converters.npy import Npy

BOMB = Path(tempfile.gettempdir()) / "npy-bomb-went-off"


def opened(folder: Path) -> TensorReader:
    return Npy().open(folder, Npy().find(sorted(path.name for path in folder.iterdir())))


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
@pytest.mark.parametrize("cuts", [(), (12,), (4, 13, 13), (0, 1, 2, 3, 22)])
def test_arrays_match_numpy(tmp_path: Path, cuts: tuple[int, ...], dtype: str) -> None:
    arrays = written(tmp_path, cuts, dtype)
    with opened(tmp_path) as reader:
        assert list(reader.tensors) == [str(number) for number in range(len(arrays))]
        for name, array in zip(reader.tensors, arrays, strict=True):
            actual = reader.read(name)
            assert (actual.shape, actual.dtype) == (array.shape, array.dtype)
            assert reader.tensors[name].shape == array.shape
            assert actual.tobytes() == array.tobytes()
            assert not actual.flags.writeable
        assert len(reader.files) == len(cuts) + 2


@pytest.mark.parametrize("cuts", [(), (4, 13, 13)])
def test_each_array_is_a_range_of_a_file(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    arrays = written(tmp_path, cuts)
    with opened(tmp_path) as reader:
        for name, array in zip(reader.tensors, arrays, strict=True):
            array_in_file = reader.lazy(name)
            assert isinstance(array_in_file, FileArray)
            span = array_in_file.file_range
            assert span is not None
            content = span.path.read_bytes()[span.offset : span.offset + span.length]
            assert content == array.tobytes()
            assert reader.read(name).tobytes() == array.tobytes()


def test_files_are_found_by_name() -> None:
    find = Npy().find
    parts = [f"params_{number}.npy" for number in range(12)]
    assert find(["params_shapes.json", *sorted(parts)]) == ("params_shapes.json", *parts)
    assert find(parts) == ()
    assert find(["params_shapes.json", "x/params_0.npy", "params_a.npy", "params_.npy"]) == ()


def test_shapes_that_do_not_fit_the_parts(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "params_shapes.json").write_text("[[3, 4], [5]]")
    with pytest.raises(VerificationError, match="lists 17 numbers, and the parts hold 31"):
        opened(tmp_path)


@pytest.mark.parametrize(
    "listed",
    [
        "",
        "{",
        "{}",
        "[]",
        "[3]",
        "[[0]]",
        "[[-1]]",
        "[[true]]",
        "[[1.5]]",
        "[[4294967296, 4294967296]]",
    ],
)
def test_malformed_shapes(tmp_path: Path, listed: str) -> None:
    written(tmp_path)
    (tmp_path / "params_shapes.json").write_text(listed)
    with pytest.raises(VerificationError, match=r"params_shapes\.json is no"):
        opened(tmp_path)


def test_parts_must_follow_each_other(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "params_2.npy").unlink()
    with pytest.raises(VerificationError, match=r"lacks params_2\.npy"):
        opened(tmp_path)
    with pytest.raises(SourceError, match="No such file"):
        Npy().open(tmp_path, ("params_shapes.json", "params_0.npy", "params_1.npy", "params_2.npy"))


def test_parts_of_several_dtypes(tmp_path: Path) -> None:
    written(tmp_path)
    np.save(tmp_path / "params_1.npy", np.zeros(9))
    with pytest.raises(VerificationError, match="several dtypes"):
        opened(tmp_path)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (BOMB,)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 2), np.float32),
        np.zeros(4, ">f4"),
        np.zeros(4, np.int32),
        np.zeros(4, np.complex64),
        np.zeros(4, "U3"),
        np.zeros(2, [("a", "<f4"), ("b", "<f4")]),
        np.array([Bomb()], object),
    ],
    ids=lambda array: str(array.dtype),
)
def test_other_arrays(tmp_path: Path, array: Any) -> None:
    """Object arrays are refused by their header, without unpickling."""
    written(tmp_path)
    np.save(tmp_path / "params_1.npy", array, allow_pickle=True)
    with pytest.raises(VerificationError, match="not a flat array of numbers"):
        opened(tmp_path)
    assert not BOMB.exists()


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", pickle.dumps(Bomb()), b"PK\x03\x04" * 50])
def test_malformed_array(tmp_path: Path, content: bytes) -> None:
    written(tmp_path)
    (tmp_path / "params_1.npy").write_bytes(content)
    with pytest.raises(VerificationError, match="not a flat array of numbers"):
        opened(tmp_path)
    assert not BOMB.exists()


@pytest.mark.parametrize("keep", [-1, -8, 130])
def test_a_part_is_cut_short(tmp_path: Path, keep: int) -> None:
    written(tmp_path)
    path = tmp_path / "params_1.npy"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(VerificationError, match="not as long as its header says"):
        opened(tmp_path)


@pytest.mark.parametrize("seed", range(60))
def test_random_bytes_raise_only_errors(tmp_path: Path, seed: int) -> None:
    written(tmp_path)
    path = tmp_path / "params_0.npy"
    generator = np.random.default_rng(seed)
    raw = bytearray(path.read_bytes())
    for place in generator.integers(0, 90, 1 + seed % 4):
        raw[place] = generator.choice(list(b"()[]{}'L0-9,:\\\"\n\x00\xff"))
    path.write_bytes(raw)
    try:
        with opened(tmp_path) as reader:
            for name in reader.tensors:
                reader.read(name)
    except ZooError as error:
        assert "\n" not in str(error)


def test_one_name_for_two_tensors(tmp_path: Path) -> None:
    """A family must not give two tensors one name."""
    written(tmp_path)
    names = {name: ReleaseTensor("same" if name in "13" else name) for name in "01234"}
    with (
        opened(tmp_path) as reader,
        pytest.raises(VerificationError, match="1 and 3 are both same"),
    ):
        RenamingReader(reader, names)


def test_shapes_on_the_hub(tmp_path: Path) -> None:
    arrays = written(tmp_path)
    names = {name: ReleaseTensor(f"hub.{name}") for name in "134"}
    names["0"] = ReleaseTensor("hub.0", transposed=True)
    names["2"] = ReleaseTensor("hub.2", squeezed=True, transposed=True)
    with opened(tmp_path) as reader:
        seen = RenamingReader(reader, names)
        assert seen.tensors["hub.2"].shape == (3, 2)
        assert np.array_equal(seen.read("hub.2"), arrays[2][0].T)
        assert np.array_equal(seen.read("hub.0"), arrays[0].T)
        assert np.array_equal(seen.read("hub.3"), arrays[3])


def header(text: str, version: int = 1) -> bytes:
    raw = text.encode("latin-1")
    return b"\x93NUMPY" + bytes([version, 0]) + len(raw).to_bytes(2 * version, "little") + raw


@pytest.mark.parametrize(
    "content",
    [
        header("(" * 60_000),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",)}"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os'),)}"),
        header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}"),
        header("-" * 100_000, 2),
        b"\x93NUMPY\2\0\xff\xff\xff\xff" + bytes(100),
        b"\x93NUMPY\3\0",
    ],
)
def test_hostile_headers(tmp_path: Path, content: bytes) -> None:
    written(tmp_path)
    (tmp_path / "params_1.npy").write_bytes(content)
    with pytest.raises(
        VerificationError, match=r"params_1\.npy is not a flat array of numbers"
    ) as e:
        opened(tmp_path)
    assert len(str(e.value)) < 500


def test_headers_of_old_releases(tmp_path: Path) -> None:
    written(tmp_path, ())
    array = np.load(tmp_path / "params_0.npy")
    old = "{'descr': '<f4', 'fortran_order': False, 'shape': (31L,), }" + " " * 10 + "\n"
    for version in (1, 2):
        (tmp_path / "params_0.npy").write_bytes(header(old, version) + array.tobytes())
        with opened(tmp_path) as reader:
            assert reader.read("0").tobytes() == array[:12].tobytes()
