"""Tensors of PyTorch files are read bit for bit as torch saved them."""

import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.converters.pickles import (
    FLOATS,
    ORDERED,
    dictionary,
    number,
    pickled,
    storage,
    streamed,
    tensor,
    text,
    zipped,
)
from zoo.errors import SourceError, VerificationError
from zoo.io.tensors.formats import TensorInfo
from zoo_converters import zoo_formats
from zoo_converters.torch_bin import TorchBinReader
from zoo_converters.torch_file import Contents, inspect

BIN = zoo_formats()[1]
NAME = "pytorch_model.bin"
CODES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}
WITHOUT_STORAGE_CLASS = {
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}


def state_dict(dtypes: Mapping[torch.dtype, str]) -> "OrderedDict[str, torch.Tensor]":
    """Return a state dict with every dtype and memory layout."""
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(6, 4, generator=generator)
    state = OrderedDict(
        owner=base,
        tied=base,
        transposed=base.T,
        slice=base[1:5:2, 1:3],
        tail=base[5],
        parameter=torch.nn.Parameter(base + 1),
        frozen=torch.nn.Parameter(base + 2, requires_grad=False),
        scalar=torch.tensor(7),
        empty=torch.zeros(0, 3),
        permuted=torch.randn(2, 3, 4, generator=generator).permute(2, 0, 1),
    )
    state["größe.重み.😀"] = torch.ones(1)
    for dtype, code in dtypes.items():
        state[code] = torch.randint(0, 2, (3, 2), generator=generator).to(dtype)
    state._metadata = OrderedDict([("", {"version": 1})])  # type: ignore[attr-defined]
    return state


def raw(value: torch.Tensor) -> bytes:
    return value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def check(folder: Path, expected: Mapping[str, torch.Tensor]) -> None:
    codes = CODES | WITHOUT_STORAGE_CLASS
    with BIN.open(folder, (NAME,)) as reader:
        assert list(reader.files) == [folder / NAME]
        assert reader.tensors == {
            name: TensorInfo(codes[value.dtype], tuple(value.shape))
            for name, value in expected.items()
        }
        for name, value in expected.items():
            assert reader.read(name).tobytes() == raw(value), name


def test_an_archive(tmp_path: Path) -> None:
    expected = state_dict(CODES | WITHOUT_STORAGE_CLASS)
    torch.save(expected, tmp_path / NAME)
    check(tmp_path, expected)


def test_a_stream_from_before_torch_1_6(tmp_path: Path) -> None:
    expected = state_dict(CODES)
    torch.save(expected, tmp_path / NAME, _use_new_zipfile_serialization=False)
    assert not (tmp_path / NAME).read_bytes().startswith(b"PK")
    check(tmp_path, expected)


def inspected(tmp_path: Path, content: object) -> Contents:
    path = tmp_path / NAME
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    return inspect(path)


def test_a_training_script_wraps_the_state_dict(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0)}
    for key in ("state_dict", "model"):
        torch.save({"epoch": 3, key: tensors, "lr": [0.1, None], "name": "x"}, tmp_path / NAME)
        assert inspect(tmp_path / NAME).wrapper == key
    check(tmp_path, tensors)


def test_an_entry_called_model_is_a_tensor_like_others(tmp_path: Path) -> None:
    assert inspected(tmp_path, {"model": torch.ones(1), "b": torch.ones(2)}).tensors.keys() == {
        "model",
        "b",
    }


def test_configuration_with_the_tensors(tmp_path: Path) -> None:
    """As in microsoft/deberta-large-mnli."""
    tensors = {"a": torch.arange(6.0), "b": torch.ones(2)}
    settings = {"hidden_size": 8, "layer_norm_eps": 1e-7, "labels": ["x", None], "deep": {"y": 1}}
    torch.save(OrderedDict({**tensors, "config": settings}), tmp_path / NAME)
    check(tmp_path, tensors)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"a": torch.ones(1), "config": {"b": torch.ones(1)}}, "'config' is not a tensor"),
        ({"a": torch.ones(1), "config": "x"}, "entry 'config' is not a tensor"),
        ({"config": {}}, "it is empty"),
        ({"a": torch.ones(1), "epoch": 3}, "entry 'epoch' is not a tensor"),
        ({"a": torch.ones(1), "rest": {"b": torch.ones(1)}}, "entry 'rest' is not a tensor"),
        ({"net": {"a": torch.ones(1)}}, "entry 'net' is not a tensor"),
        ({"model": {"a": torch.ones(1)}, "ema": {"a": torch.ones(1)}}, "'model' is not a tensor"),
        ({"state_dict": {"a": torch.ones(1), "b": 1}}, "entry 'b' is not a tensor"),
        ({"state_dict": [torch.ones(1)]}, "entry 'state_dict' is not a tensor"),
        ({"a": torch.ones(1).untyped_storage()}, "entry 'a' is not a tensor"),
        ({0: torch.ones(1)}, "0 cannot be the name of a tensor"),
        ({"a\nb": torch.ones(1)}, r"'a\nb' cannot be the name of a tensor"),
        ({"__metadata__": torch.ones(1)}, "'__metadata__' cannot be the name"),
        ({"x" * 1001: torch.ones(1)}, "xxx cannot be the name of a tensor"),
        ({(1, 2): torch.ones(1)}, "a dict has for a key a value of type tuple"),
        ([torch.ones(1)], "it holds a list and not tensors by name"),
        (torch.ones(1), "it holds a Tensor and not tensors by name"),
        ({}, "it is empty"),
        ({"a": torch.ones(2, dtype=torch.complex64)}, "torch.ComplexFloatStorage"),
        ({"a": torch.ones(2, 2).to_sparse()}, "torch._utils._rebuild_sparse_tensor"),
        ({"a": torch.ones(1).expand(9)}, "larger than its storage"),
        ({"a": torch.ones(2)._neg_view()}, "not a plain one"),
        (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
    ],
)
def test_non_state_dict_is_refused(tmp_path: Path, content: Any, says: str) -> None:
    with pytest.raises(VerificationError) as caught:
        inspected(tmp_path, content)
    line = str(caught.value)
    assert says in line
    assert "\n" not in line
    assert line.startswith(f"{tmp_path / NAME}: ")


def test_pickles_of_python_2(tmp_path: Path) -> None:
    """Python 2 has byte strings, an OrderedDict of pairs, and the first rebuild function."""
    reference = storage(view=b"N").replace(text("storage"), b"U\x07storage")
    old = tensor(reference, rest=b"", function="torch._utils\n_rebuild_tensor")
    pairs = b"](" + b"](U\x01b" + old + b"ee"
    content = streamed(pickled(b"ccollections\nOrderedDict\n(" + pairs + b"tR"))
    assert inspected(tmp_path, content).tensors == {"b": TensorInfo("F32", (2, 3))}
    check(tmp_path, {"b": torch.frombuffer(bytearray(FLOATS), dtype=torch.float32).reshape(2, 3)})


def test_an_archive_of_another_byte_order(tmp_path: Path) -> None:
    values = torch.frombuffer(bytearray(FLOATS), dtype=torch.float32)
    swapped = values.view(torch.uint8).reshape(6, 4).flip(1).numpy().tobytes()
    pickle = pickled(dictionary({"a": tensor(), "tied": tensor()}))
    content = zipped(pickle, {"byteorder": b"big", "data/0": swapped})
    inspected(tmp_path, content)
    check(tmp_path, {"a": values.reshape(2, 3), "tied": values.reshape(2, 3)})


def test_handmade_files_agree_with_torch(tmp_path: Path) -> None:
    """The malicious files of other tests differ from these in one detail each."""
    archived = zipped(pickled(dictionary({"a": tensor()})))
    stream = streamed(pickled(dictionary({"a": tensor(storage(view=b"N"))})))
    for content in (archived, stream):
        inspected(tmp_path, content)
        check(tmp_path, torch.load(tmp_path / NAME))


def test_reading_needs_no_torch_and_no_copy(tmp_path: Path) -> None:
    torch.save({"a": torch.arange(6.0), "b": torch.ones(2, 3).T}, tmp_path / NAME)
    script = f"""
import sys
from pathlib import Path
from zoo_converters.torch_bin import TorchBin
with TorchBin().open(Path({str(tmp_path)!r}), ("{NAME}",)) as reader:
    array = reader.read("a")
    assert array.tolist() == list(range(6)) and not array.flags.writeable
    span = reader.lazy("a").file_range
    assert span.path.read_bytes()[span.offset:][:span.length] == array.tobytes()
    assert reader.lazy("b").file_range is None  # not as it lies in the file
    assert reader.read("b").tolist() == [[1, 1]] * 3
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    contents = inspected(tmp_path, {"a": torch.ones(1)})
    with pytest.raises(VerificationError, match=r"a is in .* and in another shard"):
        TorchBinReader([contents, contents])


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        inspect(tmp_path / "absent.bin")
    with pytest.raises(SourceError, match="not a regular file"):
        inspect(tmp_path)


def test_integer_keys_with_the_tensors(tmp_path: Path) -> None:
    """As in the state of an optimizer without tensors."""
    state = b"}(" + text("state_dict") + dictionary({"a": tensor()})
    state += text("optimizer") + b"}(" + number(0) + ORDERED + b"uu"
    assert inspected(tmp_path, zipped(pickled(state))).wrapper == "state_dict"


def test_flipped_bit_of_an_archive_is_detected(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(64.0), "b": torch.ones(5)}
    torch.save(tensors, tmp_path / NAME)
    whole = (tmp_path / NAME).read_bytes()
    with zipfile.ZipFile(tmp_path / NAME) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
    for record in ("data.pkl", "byteorder", "data/0", "data/1"):
        entry = entries[f"pytorch_model/{record}"]
        header = whole[entry.header_offset :][:30]
        start = entry.header_offset + 30 + sum(struct.unpack("<2H", header[26:]))
        for at in range(start, start + entry.file_size):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << at % 8
            (tmp_path / NAME).write_bytes(damaged)
            with pytest.raises(VerificationError) as caught:
                read_all(tmp_path)
            assert f"{tmp_path / NAME}: the CRC-32 of its record {record!r}" in str(caught.value)
            assert "--ignore-crc" in str(caught.value)


@pytest.mark.parametrize("record", [".storage_alignment", ".data/serialization_id"])
def test_records_that_torch_parses_are_checked(record: str, tmp_path: Path) -> None:
    torch.save({"a": torch.ones(3)}, tmp_path / NAME)
    data = bytearray((tmp_path / NAME).read_bytes())
    with zipfile.ZipFile(tmp_path / NAME) as archive:
        entry = archive.getinfo(f"pytorch_model/{record}")
    header = data[entry.header_offset :][:30]
    start = entry.header_offset + 30 + sum(struct.unpack("<2H", header[26:]))
    data[start] = 0xFF
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises((ValueError, UnicodeDecodeError)):
        torch.load(tmp_path / NAME)
    with pytest.raises(VerificationError, match=record):
        inspect(tmp_path / NAME, ignore_crc=True)


@pytest.mark.parametrize("content", [b"", b"x", b"0\n", b"11\n", b"-1\n", b"9" * 30, None])
def test_versions_that_torch_refuses(content: bytes | None, tmp_path: Path) -> None:
    torch.save({"a": torch.ones(3)}, tmp_path / NAME)
    rewrite_version(tmp_path / NAME, content)
    with pytest.raises((RuntimeError, IndexError)):
        torch.load(tmp_path / NAME)
    with pytest.raises(VerificationError, match="version"):
        inspect(tmp_path / NAME)


@pytest.mark.parametrize("content", [b"1", b"3\n", b"10\n"])
def test_versions_that_torch_reads(content: bytes, tmp_path: Path) -> None:
    torch.save({"a": torch.ones(3)}, tmp_path / NAME)
    rewrite_version(tmp_path / NAME, content)
    assert torch.equal(torch.load(tmp_path / NAME)["a"], torch.ones(3))
    assert set(inspect(tmp_path / NAME).tensors) == {"a"}


def test_the_version_among_the_data_is_read_first(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(3)}, tmp_path / NAME)
    rewrite_version(tmp_path / NAME, b"3\n", among_data=b"11\n")
    with pytest.raises(RuntimeError, match="version 11"):
        torch.load(tmp_path / NAME)
    with pytest.raises(VerificationError, match="data/version"):
        inspect(tmp_path / NAME)


@pytest.mark.parametrize("field", [16, 20, 24, 32])  # disk, disk of the directory, two counts
def test_archives_of_several_disks_are_refused(field: int, tmp_path: Path) -> None:
    torch.save({"a": torch.ones(3)}, tmp_path / NAME)
    data = bytearray((tmp_path / NAME).read_bytes())
    end64 = len(data) - 22 - 20 - 56  # torch always writes this record, its locator and the old end
    assert data[end64:].startswith(b"PK\6\6")
    data[end64 + field] += 2
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(RuntimeError, match="PytorchStreamReader"):
        torch.load(tmp_path / NAME)
    with pytest.raises(VerificationError, match=r"several disks|directory"):
        inspect(tmp_path / NAME)


def test_records_on_another_disk_are_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(3)}, tmp_path / NAME)
    data = bytearray((tmp_path / NAME).read_bytes())
    begin = data.index(b"PK\1\2")
    data[begin + 34] = 7
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(RuntimeError, match="multidisk"):
        torch.load(tmp_path / NAME)
    with pytest.raises(VerificationError, match=r"data\.pkl' is on another disk"):
        inspect(tmp_path / NAME)


def rewrite_version(path: Path, content: bytes | None, among_data: bytes | None = None) -> None:
    """Replace the record with the version of an archive, or remove it."""
    with zipfile.ZipFile(path) as archive:
        records = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    records.pop("pytorch_model/version")
    if content is not None:
        records["pytorch_model/version"] = content
    if among_data is not None:
        records["pytorch_model/.data/version"] = among_data
    with zipfile.ZipFile(path, "w") as archive:
        for name, record in records.items():
            archive.writestr(name, record)


def read_all(folder: Path) -> None:
    with BIN.open(folder, (NAME,)) as reader:
        for name in reader.tensors:
            reader.read(name)


def test_an_archive_without_checksums_is_read_on_request(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6.0)}
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(tensors, tmp_path / NAME)
    finally:
        torch.serialization.set_crc32_options(True)
    with pytest.raises(VerificationError, match="--ignore-crc"):
        read_all(tmp_path)
    with BIN.without_checksums().open(tmp_path, (NAME,)) as reader:
        assert reader.read("a").tolist() == list(range(6))


def test_a_big_endian_archive_whose_tensors_are_not_of_their_storages_dtype(
    tmp_path: Path,
) -> None:
    wide = tensor(
        storage(kind="torch.storage\nUntypedStorage", count=24),
        function="torch._utils\n_rebuild_tensor_v3",
        rest=b"\x89" + ORDERED + b"ctorch\nuint16\n",
    )
    content = zipped(pickled(dictionary({"a": wide})), {"byteorder": b"big", "data/0": FLOATS})
    with pytest.raises(VerificationError, match="big-endian, and 'a' is not of its storage"):
        inspected(tmp_path, content)
    content = zipped(pickled(dictionary({"a": tensor()})), {"byteorder": b"odd", "data/0": FLOATS})
    with pytest.raises(VerificationError, match="unknown byte order"):
        inspected(tmp_path, content)
