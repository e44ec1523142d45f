"""The safetensors reader and writer against the package and damaged files."""

import json
import os
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.processes import run_limited
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.io.limits import MAX_HEADER_BYTES as MAX_HEADER
from zoo.io.tensors.formats import STORAGE, UNREAD, TensorInfo
from zoo.io.tensors.safetensors import (
    SafetensorsReader,
    header_bytes,
    read_header,
    write_chunks,
)

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "F32": torch.float32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
}
SHAPES = ((), (0,), (1,), (3, 5), (0, 4), (4, 0, 2), (2, 1, 1, 3))


def tensors_of_every_kind() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for code, dtype in DTYPES.items():
        for shape in SHAPES:
            values = torch.randint(0, 2 if dtype == torch.bool else 100, shape, generator=generator)
            tensors[f"{code}{list(shape)}"] = values.to(dtype)
    return tensors | {"große Schicht.重み.😀 'quoted\"": torch.tensor([1.5, -2.5])}


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_all_storage_dtypes_are_covered() -> None:
    assert DTYPES.keys() == STORAGE.keys()


def test_reads_files_of_the_package(tmp_path: Path) -> None:
    tensors = tensors_of_every_kind()
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt", "ü": "ß"})
    with SafetensorsReader([path]) as reader:
        assert reader.metadata == {"format": "pt", "ü": "ß"}
        assert reader.tensors.keys() == tensors.keys()
        for name, tensor in tensors.items():
            info, array = reader.tensors[name], reader.read(name)
            assert DTYPES[info.dtype] == tensor.dtype
            assert info.shape == array.shape == tuple(tensor.shape)
            assert array.tobytes() == raw(tensor)
            assert not array.flags.writeable
            assert reader.file_of(name) == path


def test_sixteen_and_eight_bit_floats_are_views_of_their_bits(tmp_path: Path) -> None:
    values = torch.randn(64, generator=torch.Generator().manual_seed(1))
    kinds = {"b": (torch.bfloat16, torch.uint16), "e": (torch.float8_e4m3fn, torch.uint8)}
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file({name: values.to(kind) for name, (kind, _) in kinds.items()}, path)
    with SafetensorsReader([path]) as reader:
        for name, (kind, bits) in kinds.items():
            np.testing.assert_array_equal(reader.read(name), values.to(kind).view(bits).numpy())


def test_package_reads_written_files(tmp_path: Path) -> None:
    tensors = tensors_of_every_kind()
    source, ours = tmp_path / "source.safetensors", tmp_path / "ours.safetensors"
    safetensors.torch.save_file(tensors, source)
    with SafetensorsReader([source]) as reader, ours.open("wb") as file:
        order = sorted(reader.tensors, key=lambda name: name[::-1])  # another order
        file.write(header_bytes({name: reader.tensors[name] for name in order}, {"a": "é"}))
        write_chunks(file, (reader.read(name) for name in order))
    loaded = safetensors.torch.load_file(ours)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].shape == tensor.shape
        assert raw(loaded[name]) == raw(tensor)
    with safetensors.safe_open(ours, "pt") as opened:
        assert opened.metadata() == {"a": "é"}


def test_tensor_in_pieces_and_any_memory_order(tmp_path: Path) -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    path = tmp_path / "t.safetensors"
    with path.open("wb") as file:
        file.write(header_bytes({"t": TensorInfo("F32", (4, 6))}, {}))
        write_chunks(file, [whole[:1], np.asfortranarray(whole[1:3]), whole[::-1][:1]])
    loaded = safetensors.torch.load_file(path)["t"].numpy()
    np.testing.assert_array_equal(loaded, whole)


def test_a_file_without_tensors(tmp_path: Path) -> None:
    path = tmp_path / "none.safetensors"
    safetensors.torch.save_file({}, path)
    assert read_header(path) == ({}, {}, {})
    path.write_bytes(header_bytes({}, {}))
    assert safetensors.torch.load_file(path) == {}


def test_several_files(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for k, path in enumerate(paths):
        safetensors.torch.save_file({f"t{k}": torch.full((2,), float(k))}, path)
    with SafetensorsReader(paths) as reader:
        assert [reader.read(f"t{k}").tolist() for k in range(2)] == [[0.0, 0.0], [1.0, 1.0]]
        assert reader.files == paths


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        safetensors.torch.save_file({"twice": torch.ones(2)}, path)
    with pytest.raises(VerificationError, match=r"twice is in both .*a and .*b"):
        SafetensorsReader(paths)


HEADER = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
}


def pack(header: object, data: bytes = bytes(32)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def changed(name: str, **fields: object) -> dict[str, Any]:
    return {**HEADER, name: {**HEADER[name], **fields}}


BAD: Mapping[str, tuple[bytes, str]] = {
    "empty": (b"", "it has 0 bytes"),
    "shorter than a length": (b"\1\0\0", "it has 3 bytes"),
    "a length alone": (struct.pack("<Q", 0), "claims 0 bytes of a 8-byte file"),
    "length beyond the file": (struct.pack("<Q", 99) + b"{}", "claims 99 bytes of a 10-byte"),
    "length of all ones": (b"\xff" * 8 + b"{}", "claims 18446744073709551615 bytes"),
    "data cut off": (pack(HEADER)[:-1], "the offsets of b do not fit"),
    "data too long": (pack(HEADER) + b"\0", "33 bytes of data where its header describes 32"),
    "header cut off": (pack(HEADER)[:40], "claims"),
    "not JSON": (pack(b"\x80\4nonsense"), "not UTF-8"),
    "not JSON but UTF-16": (pack(json.dumps(HEADER).encode("utf-16")), "not UTF-8"),
    "nested beyond reason": (pack(b"[" * 200_000), "nesting of JSON is 200,000"),
    "an integer beyond reason": (
        pack(b'{"a":' + b"9" * 10_000 + b"}"),
        "number of digits of an integer is 10,000",
    ),
    "a list": (pack([]), "not a JSON object"),
    "a name twice": (pack(b'{"a":{},"a":{}}'), "'a' is given twice"),
    "a field twice": (pack(b'{"a":{"dtype":"F32","dtype":"I8"}}'), "'dtype' is given twice"),
    "entry of another type": (pack({"a": 3}), "entry for a is malformed"),
    "entry without a shape": (pack({"a": {"dtype": "F32"}}), "entry for a is malformed"),
    "three offsets": (pack(changed("a", data_offsets=[0, 1, 2])), "entry for a is malformed"),
    "unknown dtype": (pack(changed("a", dtype="F31")), "unknown dtype 'F31'"),
    "dtype of another type": (pack(changed("a", dtype=["F32"])), "unknown dtype"),
    "shape of text": (pack(changed("a", shape="23")), "are not sizes"),
    "shape of true": (pack(changed("a", shape=[True, 6])), "are not sizes"),
    "shape of fractions": (pack(changed("a", shape=[2.0, 3])), "are not sizes"),
    "negative shape": (pack(changed("a", shape=[-2, -3])), "are not sizes"),
    "65 dimensions": (pack(changed("a", shape=[6] + [1] * 64)), "are not sizes"),
    "overflowing shape": (pack(changed("a", shape=[0, 1 << 62, 1 << 62])), "are not sizes"),
    "dimension that wraps to 6": (pack(changed("a", shape=[(1 << 62) + 6, 4])), "are not sizes"),
    "wrong size": (pack(changed("a", shape=[2, 4])), "offsets of a do not fit"),
    "end before begin": (pack(changed("a", data_offsets=[24, 0])), "offsets of a do not fit"),
    "negative offset": (pack(changed("a", data_offsets=[-24, 0])), "are not sizes"),
    "beyond the data": (pack(changed("b", data_offsets=[32, 40])), "offsets of b do not fit"),
    "overlap": (pack(changed("b", data_offsets=[16, 24])), "b starts at 16, where 24 was"),
    "gap": (pack(changed("b", data_offsets=[26, 34]), bytes(34)), "b starts at 26, where 24"),
    "gap at the front": (
        pack({"b": {**HEADER["b"], "data_offsets": [1, 9]}}, bytes(9)),
        "b starts at 1, where 0 was expected",
    ),
    "line break in a name": (pack({"a\nb": HEADER["a"]}), r"cannot be the name"),
    "terminal escape in a name": (pack({"\x1b[2J": HEADER["a"]}), "cannot be the name"),
    "an endless name": (pack({"a" * 1001: HEADER["a"]}), "cannot be the name"),
    "half a character in a name": (pack(b'{"\\ud800":{}}'), "lone surrogate"),
    "metadata of numbers": (pack({**HEADER, "__metadata__": {"a": 1}}), "not strings"),
    "metadata of another type": (pack({**HEADER, "__metadata__": [1]}), "not strings"),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid x\n", "Git LFS"),
}


@pytest.mark.parametrize("code", sorted(UNREAD))
def test_dtypes_that_are_not_read_are_named(tmp_path: Path, code: str) -> None:
    """The file is sound: to fetch it again does not help."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(pack(changed("a", dtype=code)))
    with pytest.raises(UsageError, match=rf"a has the dtype {code} \(.*\), which") as caught:
        read_header(path)
    assert str(caught.value.hint).startswith("save the tensors in float32")


def test_every_dtype_of_safetensors_is_read_or_named() -> None:
    from safetensors.torch import _TYPES

    assert set(_TYPES) - {*STORAGE, *UNREAD} == set()


@pytest.mark.parametrize("case", BAD)
def test_damaged_file_is_one_line(tmp_path: Path, case: str) -> None:
    content, why = BAD[case]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(VerificationError) as caught:
        read_header(path)
    line = str(caught.value)
    assert why in line
    assert line.startswith(str(path))
    assert "\n" not in line
    assert len(line) < 400


def test_header_above_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MAX_HEADER + 1))
        file.truncate(MAX_HEADER + 100)  # a sparse file
    with pytest.raises(VerificationError, match="length of the header is 16,777,217"):
        read_header(path)


def test_every_truncation_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    whole = pack(HEADER)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(VerificationError):
            read_header(path)


def test_a_missing_file_a_directory_and_a_pipe(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        read_header(tmp_path / "absent")
    with pytest.raises(SourceError, match="not a regular file"):
        read_header(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="not a regular file"):
        read_header(tmp_path / "pipe")


def test_a_file_that_shrinks_after_its_header_was_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(pack(HEADER))
    with SafetensorsReader([path]) as reader:
        os.truncate(path, path.stat().st_size - 1)
        with pytest.raises(VerificationError, match="cut short since"):
            reader.read("a")
        path.unlink()
        with pytest.raises(SourceError, match="gone since"):
            reader.read("b")


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(pack(HEADER))
    with SafetensorsReader([path]) as reader:
        reader.read("a")
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
        os.utime(path, (1, 1))
        with pytest.raises(VerificationError, match="was changed while it was read"):
            reader.read("b")


def mutations() -> st.SearchStrategy[Callable[[bytes], bytes]]:
    def put(at: int, new: bytes) -> Callable[[bytes], bytes]:
        return lambda old: old[: at % len(old)] + new + old[at % len(old) + len(new) :]

    def insert(at: int, new: bytes) -> Callable[[bytes], bytes]:
        return lambda old: old[: at % len(old)] + new + old[at % len(old) :]

    def drop(at: int, count: int) -> Callable[[bytes], bytes]:
        return lambda old: old[: at % len(old)] + old[at % len(old) + count :] or b"\0"

    at, some = st.integers(0, 300), st.binary(min_size=1, max_size=6)
    digits = st.integers(0, 1 << 70).map(lambda n: str(n).encode())
    return (
        st.builds(put, at, some | digits)
        | st.builds(insert, at, some | digits)
        | st.builds(drop, at, st.integers(1, 20))
    )


@given(st.lists(mutations(), min_size=1, max_size=4), st.booleans())
@example([], True)
def test_mutated_headers_raise_only_errors(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[Callable[[bytes], bytes]],
    mend_length: bool,
) -> None:
    header = json.dumps({**HEADER, "__metadata__": {"format": "pt"}}).encode()
    data = bytes(range(32))
    for change in changes:
        header = change(header) if mend_length else header
    content = struct.pack("<Q", len(header)) + header + data
    for change in changes:
        content = content if mend_length else change(content)
    path = tmp_path_factory.getbasetemp() / "mutated.safetensors"
    path.write_bytes(content)
    try:
        reader = SafetensorsReader([path])
    except VerificationError as error:
        assert "\n" not in str(error)
        return
    with reader:
        total = sum(len(reader.read(name).tobytes()) for name in reader.tensors)
    assert total <= len(content)


@given(
    st.lists(st.tuples(st.sampled_from(sorted(STORAGE)), st.lists(st.integers(0, 4), max_size=4)))
)
def test_any_layout_round_trips(
    tmp_path_factory: pytest.TempPathFactory, layout: list[tuple[str, list[int]]]
) -> None:
    infos = {f"t{k}": TensorInfo(dtype, tuple(shape)) for k, (dtype, shape) in enumerate(layout)}
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.integers(0, 2, info.nbytes, np.uint8)
        .view(STORAGE[info.dtype])
        .reshape(info.shape)
        for name, info in infos.items()
    }
    path = tmp_path_factory.getbasetemp() / "layout.safetensors"
    with path.open("wb") as file:
        file.write(header_bytes(infos, {}))
        write_chunks(file, arrays.values())
    with SafetensorsReader([path]) as reader:
        assert reader.tensors == infos
        for name, array in arrays.items():
            assert reader.read(name).tobytes() == array.tobytes()
    assert safetensors.torch.load_file(path).keys() == infos.keys()


@pytest.mark.long
def test_a_header_of_many_tensors_is_refused_in_bounded_time(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    entry = b'":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    path.write_bytes(
        pack(b'{"' + b',"'.join(b"%d" % n + entry for n in range(100_001)) + b"}", b"")
    )
    script = "import sys; from pathlib import Path\n"
    script += "from zoo.io.tensors.safetensors import read_header\n"
    command = [sys.executable, "-c", f"{script}read_header(Path(sys.argv[1]))", path]
    done = run_limited(command, seconds=30)
    assert "number of tensors is 100,001" in done.stderr
    assert done.peak_bytes < 400_000_000
