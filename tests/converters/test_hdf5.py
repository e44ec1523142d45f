"""HDF5 files: reading, refused files, and writing."""

import sys
import time
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.processes import run_limited
from zoo.errors import UsageError, VerificationError
from zoo.io.tensors.file_array import FileArray
from zoo.io.tensors.formats import TensorInfo, TensorToWrite
from zoo_converters import confined
from zoo_converters.hdf5 import Hdf5

HDF5 = Hdf5()


def output(name: str, array: Any, code: str = "F32") -> TensorToWrite:
    return TensorToWrite(name, TensorInfo(code, array.shape), lambda: [array])


def write(path: Path, **arrays: Any) -> Path:
    with h5py.File(path / "weights.hdf5", "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name.replace("__", "/"), data=array)
    return path


def test_files_are_chosen_by_name() -> None:
    assert HDF5.find(["a.txt", "model.hdf5"]) == ("model.hdf5",)
    assert HDF5.find(["x_0.hdf5", "x_1.hdf5", "lm_weights.hdf5"]) == ("lm_weights.hdf5",)
    assert HDF5.find(["x_0.hdf5", "x_1.hdf5"]) == ()
    assert HDF5.find(["tf_model.h5", "sub/weights.hdf5"]) == ()


def test_arrays_are_read_by_their_path(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "top": random.normal(size=(3, 4)).astype(np.float32),
        "group__inner__deep": random.normal(size=5),
        "group__half": random.normal(size=(2, 1, 2)).astype(np.float16),
        "numbers": np.arange(4),
        "scalar": np.float32(0.5),
    }
    with HDF5.open(write(tmp_path, **arrays), ["weights.hdf5"]) as reader:
        assert reader.tensors == {
            "group/half": TensorInfo("F16", (2, 1, 2)),
            "group/inner/deep": TensorInfo("F64", (5,)),
            "numbers": TensorInfo("I64", (4,)),
            "scalar": TensorInfo("F32", ()),
            "top": TensorInfo("F32", (3, 4)),
        }
        for name, array in arrays.items():
            actual = reader.read(name.replace("__", "/"))
            assert np.array_equal(actual, array)


@pytest.mark.long
def test_compressed_and_foreign_byte_orders_are_read(tmp_path: Path) -> None:
    array = np.arange(600, dtype=np.float32).reshape(20, 30)
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        file.create_dataset("packed", data=array, compression="gzip", chunks=(7, 7))
        file.create_dataset("big", data=array.astype(">f4"))
    with HDF5.open(tmp_path, ["weights.hdf5"]) as reader:
        for name in ("packed", "big"):
            actual = reader.read(name)
            assert reader.tensors[name] == TensorInfo("F32", (20, 30))
            assert actual.dtype == "<f4" and np.array_equal(actual, array)


def test_plain_array_is_a_range_of_the_file(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)
    path = write(tmp_path, group__plain=array, empty=np.zeros((0, 3), np.float32))
    with HDF5.open(path, ["weights.hdf5"]) as reader:
        array_in_file = reader.lazy("group/plain")
        assert isinstance(array_in_file, FileArray)
        span = array_in_file.file_range
        assert span is not None
        content = span.path.read_bytes()[span.offset : span.offset + span.length]
        assert content == array.tobytes()
        assert np.array_equal(reader.read("group/plain"), array)
        assert reader.read("empty").shape == (0, 3)


def test_user_block(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)
    with h5py.File(tmp_path / "weights.hdf5", "w", userblock_size=512) as file:
        file.create_dataset("plain", data=array)
    with HDF5.open(tmp_path, ["weights.hdf5"]) as reader:
        assert np.array_equal(reader.read("plain"), array)


def test_external_data_are_refused(tmp_path: Path) -> None:
    def refused(kind: str, match: str) -> None:
        with pytest.raises(VerificationError, match=match):
            HDF5.open(tmp_path, [f"{kind}.hdf5"])

    with h5py.File(tmp_path / "secret.hdf5", "w") as file:
        file["x"] = np.zeros(3)
    (tmp_path / "raw").write_bytes(bytes(12))
    with h5py.File(tmp_path / "link.hdf5", "w") as file:
        file["group/x"] = h5py.ExternalLink("secret.hdf5", "/x")
    with h5py.File(tmp_path / "soft.hdf5", "w") as file:
        file["x"] = h5py.SoftLink("/y")
    with h5py.File(tmp_path / "outside.hdf5", "w") as file:
        file.create_dataset("x", (3,), "f4", external=[(str(tmp_path / "raw"), 0, 12)])
    with h5py.File(tmp_path / "virtual.hdf5", "w") as file:
        layout = h5py.VirtualLayout((3,), "f8")
        layout[:] = h5py.VirtualSource("secret.hdf5", "x", (3,))
        file.create_virtual_dataset("x", layout)
    refused("link", "group/x is a link")
    refused("soft", "x is a link")
    refused("outside", "x keeps its data in another file")
    refused("virtual", "x keeps its data in another file")


@pytest.mark.by_default("text")
@pytest.mark.parametrize(
    "value", ["text", np.array([b"ab"]), np.zeros(2, complex), np.zeros(2, [("a", "f4")])], ids=str
)
def test_non_numeric_arrays_are_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(VerificationError, match="x holds"):
        HDF5.open(write(tmp_path, x=value), ["weights.hdf5"])


def test_circular_groups(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        file.create_group("a")
        file["a/again"] = file["a"]  # a hard link to its parent
    with pytest.raises(VerificationError, match="a/again is the same object as a"):
        HDF5.open(tmp_path, ["weights.hdf5"])


@pytest.mark.by_default("100")
@pytest.mark.parametrize("keep", [0, 100, 2000, -1])
def test_a_damaged_file_is_refused(tmp_path: Path, keep: int) -> None:
    path = write(tmp_path, x=np.arange(500.0), group__y=np.arange(500.0)) / "weights.hdf5"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(VerificationError, match=r"weights\.hdf5"):
        HDF5.open(tmp_path, ["weights.hdf5"])


def test_other_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.hdf5").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(VerificationError, match="not an HDF5 file"):
        HDF5.open(tmp_path, ["weights.hdf5"])


def test_without_h5py_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, x=np.zeros(3))
    monkeypatch.setitem(sys.modules, "h5py", None)  # as if it were not installed
    with pytest.raises(UsageError) as error:
        HDF5.open(tmp_path, ["weights.hdf5"])
    assert "pip install h5py" in str(error.value)
    with pytest.raises(UsageError, match=r"^lm_weights\.hdf5 needs h5py"):  # not the staging path
        HDF5.write(tmp_path, [output("a", np.zeros(1, np.float32))], lambda _: None)
    with pytest.raises(UsageError, match="h5py"):
        HDF5.write(tmp_path, [], lambda _: None)


def test_write_and_read(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "a/b": np.array([np.nan, -0.0, np.inf], np.float32),
        "c": np.zeros((0, 2), np.float32),
        "d": np.arange(6, dtype=np.float32).reshape(2, 3).T,  # column-major
    }
    progress: list[int] = []
    files = HDF5.write(tmp_path, [output(n, a) for n, a in arrays.items()], progress.append)
    assert sum(progress) == 12 + 24
    with HDF5.open(tmp_path, [path.name for path in files]) as reader:
        for name, array in arrays.items():
            assert reader.read(name).tobytes() == array.tobytes()


def test_unsupported_dtype_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="BF16"):
        HDF5.write(tmp_path, [output("x", np.zeros(3, np.uint16), "BF16")], lambda _: None)


def bombs(folder: Path) -> dict[str, str]:
    """Write small files with huge or external data; return file -> expected message."""
    with h5py.File(folder / "links.hdf5", "w") as file:
        group = file.create_group("0")
        for _ in range(14):  # 2 ** 14 paths
            inner = group.create_group("a")
            group["b"] = inner
            group = inner
    with h5py.File(folder / "deep.hdf5", "w") as file:
        file["/".join("a" * 40)] = np.zeros(1)
    with h5py.File(folder / "many.hdf5", "w", libver="latest") as file:
        for number in range(20_001):
            file.create_group(str(number))
    with h5py.File(folder / "name.hdf5", "w") as file:
        file["x" * 2000] = np.zeros(1)
    with h5py.File(folder / "chunk.hdf5", "w") as file:  # 3 GB in 1,400 bytes
        settings = {"maxshape": (None,), "chunks": (3 << 30,), "compression": 9}
        array = file.create_dataset("x", (1,), "u1", **settings)
        array.id.write_direct_chunk((0,), zlib.compress(bytes(100)))
    with h5py.File(folder / "packed.hdf5", "w") as file:
        file.create_dataset("x", data=np.zeros(1 << 25, "u1"), chunks=(1 << 20,), compression=9)
    with h5py.File(folder / "absent.hdf5", "w") as file:
        file.create_dataset("x", (10**12,), "f4")
    with h5py.File(folder / "reference.hdf5", "w") as file:
        file["y"] = np.zeros(3)
        file.create_dataset("x", data=[file["y"].ref], dtype=h5py.ref_dtype)
    with h5py.File(folder / "type.hdf5", "w") as file:
        file["x"] = np.dtype("f4")
    with h5py.File(folder / "filter.hdf5", "w") as file:
        file.create_dataset("x", data=np.zeros(100), chunks=(10,), scaleoffset=2)
    return {
        "links": "is the same object as",
        "deep": "more than 32 groups",
        "many": "number of arrays and groups is",
        "name": "has 2000 characters",
        "chunk": "size of a chunk of x in bytes is 3,221,225,472",
        "packed": "size of its arrays in bytes is 33,554,432",
        "absent": "x has a shape but no data",
        "reference": "x holds object",
        "type": "x is not an array",
        "filter": "x is stored with an unknown filter",
    }


@pytest.mark.long
def test_hdf5_bombs_are_refused_quickly(tmp_path: Path) -> None:
    for name, message in bombs(tmp_path).items():
        begin = time.monotonic()
        with pytest.raises(VerificationError) as caught:
            HDF5.open(tmp_path, [f"{name}.hdf5"])
        assert message in str(caught.value), name
        assert time.monotonic() - begin < 10, name


@pytest.mark.long
def test_compression_bomb_in_a_chunk(tmp_path: Path) -> None:
    """The stated size of the chunk is small, but it decompresses to half a gigabyte."""
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        array = file.create_dataset("x", (1 << 16,), "u1", chunks=(1 << 16,), compression=9)
        array.id.write_direct_chunk((0,), zlib.compress(bytes(1 << 29), 1))
        file["rest"] = np.zeros(1 << 10)
    script = "from pathlib import Path; from zoo_converters.hdf5 import Hdf5Reader as R; "
    script += "R(Path('weights.hdf5')).read('x')"
    done = run_limited([sys.executable, "-c", script], cwd=tmp_path)
    assert "VerificationError: weights.hdf5: " in done.stderr
    assert done.peak_bytes < 300 << 20


def test_a_wrong_checksum_of_a_chunk_is_found(tmp_path: Path) -> None:
    array = np.arange(1000.0)
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        file.create_dataset("x", data=array, fletcher32=True, chunks=(100,))
    content = (tmp_path / "weights.hdf5").read_bytes()
    with HDF5.open(tmp_path, ["weights.hdf5"]) as reader:
        assert np.array_equal(reader.read("x"), array)
    at = content.index(array[500:600].tobytes()) + 13
    damaged = content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
    (tmp_path / "weights.hdf5").write_bytes(damaged)
    with HDF5.open(tmp_path, ["weights.hdf5"]) as reader, pytest.raises(VerificationError):
        reader.read("x")


def test_library_crash_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, x=np.zeros(3)) / "weights.hdf5"
    for code, message in (
        ("import os; os.abort()", "the library that reads it failed with SIGABRT"),
        ("while True: pass", "reading it takes too long"),
        ("raise SystemExit(9)", "the library that reads it failed with status 9"),
    ):
        monkeypatch.setattr(confined, "BOOT", f"import resource; {LIMIT}; exec({code!r})")
        with pytest.raises(VerificationError, match=rf"weights\.hdf5: {message}"):
            HDF5.open(path.parent, [path.name])


LIMIT = "resource.setrlimit(resource.RLIMIT_CPU, (1, 1))"


def test_subprocess_has_no_files_and_no_secrets(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    sys.path.append(str(tmp_path))
    try:
        import probe  # type: ignore[import-not-found]

        answer = confined.call_confined(probe.probe, tmp_path, {}, memory=1 << 26, seconds=1)
    finally:
        sys.path.remove(str(tmp_path))
    assert answer == ["OSError", "OSError", "MemoryError", []]


PROBE = """
import os, socket
from zoo_converters.confined import forbid_files, limit_resources

def probe(limits):
    def error(action):
        try:
            action()
        except Exception as error:
            return type(error).__name__
    limit_resources(**limits)
    forbid_files()
    return [
        error(lambda: open("/etc/passwd")),
        error(lambda: socket.socket()),
        error(lambda: bytearray(1 << 28)),
        [name for name in os.environ if "TOKEN" in name],
    ]
"""


@pytest.mark.long
def test_floats_of_other_widths_are_translated(tmp_path: Path) -> None:
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_ebias(100)
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        space = h5py.h5s.create_simple((3,))
        array = h5py.h5d.create(file.id, b"x", kind, space)
        array.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1.0, 2.0, 3.5], np.float32))
    with HDF5.open(tmp_path, ["weights.hdf5"]) as reader:
        assert reader.read("x").tolist() == [1.0, 2.0, 3.5]
