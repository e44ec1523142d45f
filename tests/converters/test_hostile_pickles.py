"""Malicious pickles: each is refused with a reason, and no code is run."""

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.converters.pickles import (
    FLOATS,
    ORDERED,
    dictionary,
    number,
    numbers,
    pickled,
    storage,
    streamed,
    tensor,
    text,
    zipped,
)
from zoo.errors import SourceError, VerificationError
from zoo_converters.torch_bin import TorchBinReader
from zoo_converters.torch_file import Contents, inspect
from zoo_converters.zip_layout import END, LOCAL

GOOD = pickled(dictionary({"a": tensor()}))


def scanned(folder: Path, content: bytes, *, ignore_crc: bool = False) -> Contents:
    path = folder / "pytorch_model.bin"
    path.write_bytes(content)
    return inspect(path, ignore_crc=ignore_crc)


def raw(value: torch.Tensor) -> bytes:
    plain = torch.empty(value.shape, dtype=value.dtype).copy_(value.detach())
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def refused(folder: Path, content: bytes, says: str) -> None:
    with pytest.raises(VerificationError) as caught:
        scanned(folder, content)
    line = str(caught.value)
    assert says in line
    assert "\n" not in line
    assert len(line) < 500


def test_unmodified_files_are_accepted(tmp_path: Path) -> None:
    assert scanned(tmp_path, zipped(GOOD)).zipped
    stream = streamed(pickled(dictionary({"a": tensor(storage(view=b"N"))})))
    assert not scanned(tmp_path, stream).zipped


class Payload:
    """A payload that creates a file when it is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.what = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self.what


@pytest.mark.promise("pickle")
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("shape", ["bare", "in a stream", "in an archive", "in a state dict"])
def test_code_in_a_pickle_is_named_and_not_run(tmp_path: Path, protocol: int, shape: str) -> None:
    mark = tmp_path / "harm"
    payloads = {
        "posix.system": Payload(os.system, f"touch {mark}"),
        "eval": Payload(eval, f"open({str(mark)!r}, 'w')"),
        "io.open": Payload(open, str(mark), "w"),
    }
    for name, payload in payloads.items():
        harm = pickle.dumps(payload, protocol)
        content = {
            "bare": harm,
            "in a stream": streamed(harm),
            "in an archive": zipped(harm),
            "in a state dict": zipped(
                pickled(dictionary({"a": tensor(), "b": harm.removesuffix(b".")}))
            ),
        }[shape]
        refused(tmp_path, content, name)
        assert not mark.exists()
    pickle.loads(pickle.dumps(payloads["eval"], protocol))
    assert mark.exists()  # unpickling runs the payload


@pytest.mark.promise("pickle")
@pytest.mark.parametrize(
    "name",
    [
        "builtins getattr",
        "__builtin__ apply",
        "builtins exec",
        "builtins bytearray",
        "os system",
        "nt system",
        "sys modules",
        "subprocess Popen",
        "runpy _run_code",
        "webbrowser open",
        "importlib import_module",
        "pickle loads",
        "functools partial",
        "operator attrgetter",
        "types CodeType",
        "numpy.core.multiarray _reconstruct",
        "_codecs encode",
        "collections Counter",
        "collections OrderedDict.fromkeys",
        "torch load",
        "torch.hub load",
        "torch.jit load",
        "torch.storage _load_from_bytes",
        "torch.utils.cpp_extension load",
        "torch.utils.collect_env run",
        "torch._inductor.codecache load",
        "torch.nn.parameter Parameter",
        "torch._utils _rebuild_wrapper_subclass",
        "torch._utils _rebuild_device_tensor_from_numpy",
        "torch._utils _rebuild_sparse_tensor",
        "torch._tensor _rebuild_from_type_v2",
        "torch.serialization _get_layout",
        "torch.storage TypedStorage",
        "torch ComplexFloatStorage",
        "torch device",
        "torch  FloatStorage",
        "\x1b[2J x",
    ],
)
def test_disallowed_global(tmp_path: Path, name: str) -> None:
    content = b"c" + name.replace(" ", "\n", 1).encode() + b"\n"
    refused(tmp_path, zipped(pickled(content)), repr(name.replace(" ", ".", 1)))


@pytest.mark.promise("pickle")
@pytest.mark.parametrize(
    ("code", "says"),
    [
        (b"(S'x'\nios\nsystem\n", "STRING"),
        (b"(ios\nsystem\n", "INST"),
        (b"(ccollections\nOrderedDict\no", "OBJ"),
        (b"ccollections\nOrderedDict\n)\x81", "NEWOBJ"),
        (b"ccollections\nOrderedDict\n)}\x92", "NEWOBJ_EX"),
        (b"\x82\x01", "EXT1"),
        (b"Pstorage\n", "PERSID"),
        (b"N0", "POP"),
        (b"N2", "DUP"),
        (b"\x8f", "EMPTY_SET"),
        (b"\x8e" + bytes(8), "BINBYTES8"),
        (b"\x8b\xff\xff\xff\x7f", "damaged"),  # states 2 GiB
        (b"X\xff\xff\xff\xffshort", "damaged"),
        (b"\x8d" + b"\xff" * 8, "damaged"),
        (b"\xff", "damaged"),
        (b"", "damaged"),
        (b"NN", "damaged"),
        (b"(N", "damaged"),
        (b"t", "damaged"),
        (b"h\x07", "damaged"),
        (b"q\x07", "damaged"),
        (b"NR", "damaged"),
        (b"\x86", "damaged"),
        (b"}(Nu", "damaged"),
        (b"cno newline", "damaged"),
        (text("torch.FloatStorage") + b")R", "it calls a value of type str"),
        (b"ctorch\nFloatStorage\n" + numbers((1 << 40,)) + b"R", "it calls torch.FloatStorage"),
        (b"ccollections\nOrderedDict\n]R", "calls a function with a value of type list"),
        (b"}" + dictionary({"_metadata": b"N"}) + b"b", "sets attributes of a value of type dict"),
        (tensor() + dictionary({"_metadata": b"N"}) + b"b", "attributes of a value of type Tensor"),
        (b"ccollections\nOrderedDict\n" + b"}b", "sets attributes of collections.OrderedDict"),
        (ORDERED.removesuffix(b"R") + b"R" + dictionary({"__class__": b"N"}) + b"b", "attributes"),
        (ORDERED + dictionary({"_metadata": b"N", "keys": b"N"}) + b"b", "sets attributes that"),
        (ORDERED + b"Nb", "sets attributes that"),
        (b")Na", "it appends to a value of type tuple"),
        (b"]" + text("k") + b"Ns", "it sets entries of a value of type list"),
        (b"}(" + text("k") + b"N" + text("k") + b"Nu", "sets the entry 'k' twice"),
        (b"}]Ns", "a dict has for a key a value of type list"),
    ],
)
def test_disallowed_instruction(tmp_path: Path, code: bytes, says: str) -> None:
    refused(tmp_path, zipped(pickled(code)), says)


@pytest.mark.promise("pickle")
@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (b"NQ", "refers to something"),
        (text("storage") + b"Q", "refers to something"),
        (b"(" + text("module") + b"NNNtQ", "refers to a 'module'"),
        (b"(" + text("http://evil") + b"tQ", "refers to a 'http://evil'"),
        (b"(" + text("storage") + b"tQ", "refers to something"),
        (storage(kind="torch\nfloat32"), "storage that cannot be read: torch.float32"),
        (storage(kind="collections\nOrderedDict"), "cannot be read: collections.OrderedDict"),
        (storage(count=-1), "impossible size for storage '0'"),
        (storage(view=b"(" + text("v") + number(0) + number(3) + b"t"), "refers to something"),
        (storage().replace(number(6), b"\x88"), "refers to something"),
        (storage().replace(number(6), b"G" + struct.pack(">d", 6)), "refers to something"),
    ],
)
def test_persistent_id_that_is_no_storage(tmp_path: Path, reference: bytes, says: str) -> None:
    refused(tmp_path, zipped(pickled(dictionary({"a": tensor(reference)}))), says)


@pytest.mark.promise("pickle")
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (tensor(storage(count=1 << 40)), "claims 4398046511104 bytes for storage '0', which has"),
        (tensor(storage(count=7)), "claims 28 bytes for storage '0', which has 24"),
        (tensor(storage(count=1 << 2000)), "impossible size for storage '0'"),
        (tensor(storage(kind="torch\nDoubleStorage")), "claims 48 bytes"),
        (tensor(storage("1")), "for storage '1', which is missing"),
        (tensor(storage("../version")), "which is missing"),
        (tensor(shape=(2, 4), strides=(4, 1)), "larger than its storage"),
        (tensor(offset=1), "larger than its storage"),
        (tensor(strides=(4, 1)), "larger than its storage"),
        (tensor(shape=(1 << 40,), strides=(0,)), "larger than its storage"),
        (tensor(shape=(3, 3), strides=(0, 1)), "larger than its storage"),
        (tensor(shape=(1 << 32, 1 << 32), strides=(0, 0)), "not a plain one"),
        (tensor(offset=-1), "not a plain one"),
        (tensor(strides=(-3, 1)), "not a plain one"),
        (tensor(shape=(-2, -3)), "not a plain one"),
        (tensor(shape=(2,)), "not a plain one"),
        (tensor(shape=(1,) * 65, strides=(1,) * 65), "not a plain one"),
        (tensor(offset=1 << 64), "not a plain one"),
        (tensor(b"N"), "damaged"),
        (tensor(tensor()), "damaged"),
        (tensor(rest=b"\x89" + dictionary({"hook": b"N"})), "not a plain one"),
        (tensor(rest=b"\x89" + ORDERED + dictionary({"neg": b"\x88"})), "not a plain one"),
        (tensor(rest=b"N" + ORDERED), "not a plain one"),
        (tensor(function="torch._utils\n_rebuild_parameter"), "damaged"),
        (
            tensor(
                function="torch._utils\n_rebuild_tensor_v3",
                rest=b"\x89" + ORDERED + b"ctorch\nfloat64\n",
            ),
            "larger than its storage",
        ),
        (
            tensor(
                function="torch._utils\n_rebuild_tensor_v3",
                rest=b"\x89" + ORDERED + b"ccollections\nOrderedDict\n",
            ),
            "damaged",
        ),
        (b"ctorch._utils\n_rebuild_parameter\n(N\x88" + ORDERED + b"tR", "not a plain one"),
    ],
)
def test_tensor_outside_of_its_storage(tmp_path: Path, value: bytes, says: str) -> None:
    refused(tmp_path, zipped(pickled(dictionary({"a": value}))), says)


def test_a_storage_described_in_two_ways(tmp_path: Path) -> None:
    other = tensor(storage(count=5), shape=(5,), strides=(1,))
    pickle = pickled(dictionary({"a": tensor(), "b": other}))
    refused(tmp_path, zipped(pickle), "describes the storage '0' in two ways")


def test_small_file_with_huge_tensors(tmp_path: Path) -> None:
    data = bytes(1 << 20)
    tensor_code = tensor(storage(count=1 << 18), shape=(1 << 18,), strides=(1,)) + b"q\1"
    entries = {"a": tensor_code} | {f"t{k}": b"h\1" for k in range(1000)}
    refused(
        tmp_path,
        zipped(pickled(dictionary(entries)), {"data/0": data}),
        "size of its tensors in bytes is 1,049,624,576",
    )


def test_recursive_values(tmp_path: Path) -> None:
    refused(tmp_path, zipped(pickled(b"]q\1h\1a")), "it holds a list")
    refused(tmp_path, zipped(pickled(b"}q\1" + text("model") + b"h\1s")), "'model' is not a tensor")
    loop = b"}q\1(" + text("a") + tensor() + text("loop") + b"h\1u"
    refused(tmp_path, zipped(pickled(dictionary({"model": loop}))), "'loop' is not a tensor")
    hooks = b"\x89}q\1" + text("h") + b"h\1s"
    refused(tmp_path, zipped(pickled(dictionary({"a": tensor(rest=hooks)}))), "not a plain one")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "damaged"),
        (b"\x80\2N.", "neither a ZIP archive nor a stream"),
        (b"PK\3\4", "cut off"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>Not found</html>", "damaged"),
        (bytes(257) + b"ustar\0" + bytes(300), "from before 2017"),
        (streamed(GOOD)[:-1], "ends within its storage '0'"),
        (streamed(GOOD)[:-25], "cut off"),
        (streamed(GOOD) + b"\0", "where its storages end at"),
        (streamed(GOOD, {}), "not those that its tensors refer to"),
        (streamed(GOOD, {"0": FLOATS, "1": FLOATS}), "not those that its tensors refer to"),
        (streamed(GOOD, {"0": FLOATS[:-4]}), "of the wrong size"),
        (streamed(GOOD).replace(b"little_endian\x88", b"little_endian\x89"), "big-endian"),
        (streamed(GOOD).replace(number(1001), number(1002)), "unknown version"),
        (streamed(GOOD).replace(b"](", b")("), "appends to a value of type tuple"),
        (
            streamed(pickled(dictionary({"a": tensor(storage(count=1 << 62))}))),
            "of the wrong size",
        ),
    ],
)
def test_files_of_neither_layout(tmp_path: Path, content: bytes, says: str) -> None:
    refused(tmp_path, content, says)


def archive(*records: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as out:
        for name, data in records:
            info = zipfile.ZipInfo(name)
            info.compress_type = compression
            out.writestr(info, data)
    return file.getvalue()


PICKLE, DATA = ("archive/data.pkl", GOOD), ("archive/data/0", FLOATS)


def patched(content: bytes, at: int, new: bytes) -> bytes:
    at %= len(content)
    return content[:at] + new + content[at + len(new) :]


def directory_of(content: bytes) -> int:
    return int(END.unpack(content[-END.size :])[6])


def overlapping() -> bytes:
    """Return an archive whose second directory entry points to the first record."""
    content = archive(PICKLE, DATA)
    at = content.index(b"PK\1\2", directory_of(content) + 4)
    return patched(content, at + 42, bytes(4))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_ambiguous_archives(tmp_path: Path) -> None:
    good = archive(PICKLE, DATA, ("archive/version", b"3\n"))
    scanned(tmp_path, good)
    evil = ("archive/data.pkl", pickle.dumps(Payload(os.getpid), 2))
    second = LOCAL.size + len(PICKLE[0]) + len(GOOD)  # start of the second record
    cases = [
        (archive(PICKLE, DATA, evil), "two records of one name"),
        (archive(PICKLE, DATA, ("archive/DATA.PKL", evil[1])), "two records of one name"),
        (archive(PICKLE, DATA, ("evil/data.pkl", evil[1])), "in several folders"),
        (archive(("evil/data.pkl", evil[1]), PICKLE, DATA), "in several folders"),
        (archive(DATA), "it has no data.pkl"),
        (archive(PICKLE, DATA, ("archive/constants.pkl", b"")), "TorchScript"),
        (archive(PICKLE, DATA, compression=zipfile.ZIP_DEFLATED), "is compressed"),
        (archive(("archive/data.pkl", GOOD + b"N."), DATA), "continues past its end"),
        (
            archive(("archive/data.pkl", bytes((1 << 23) + 1))),
            "'data.pkl' has 8388609 bytes",
        ),
        (archive(), "damaged"),
        (b"PK\3\4" + good, "not where it should be"),
        (good + b"tail", "has a tail"),
        (good + good, "not where it should be"),
        (good[:-1], "has a tail"),
        (patched(good, -2, b"\4\0") + b"PK\5\6", "has a tail"),  # a comment
        (patched(good, second + LOCAL.size, b"archive/data/1"), "another header than"),
        (patched(good, second + 8, b"\x08"), "is compressed"),
        (patched(good, second + 6, b"\x01"), "is encrypted"),
        (patched(good, second + 28, b"\xff\xff"), "longer than the file"),
        (overlapping(), "overlaps another"),
        (patched(good, directory_of(good) + 20, b"\xff"), "is compressed"),
        (patched(good, directory_of(good), b"XX"), "directory is damaged"),
        (patched(good, -6, b"\xff"), "not where it should be"),
        (patched(good, -10, b"\xff"), "not where it should be"),
    ]
    for content, says in cases:
        refused(tmp_path, content, says)


def test_every_truncation_of_a_file_is_detected(tmp_path: Path) -> None:
    for whole in (zipped(GOOD), streamed(GOOD)):
        for length in range(len(whole)):
            with pytest.raises(VerificationError):
                scanned(tmp_path, whole[:length])


def assert_torch_agrees(contents: Contents) -> None:
    """Check that torch reads the same tensors from an accepted file."""
    try:
        loaded = torch.load(contents.path, weights_only=True, mmap=contents.zipped)
    except Exception:  # torch may refuse the file
        return
    state = loaded if contents.wrapper is None else loaded[contents.wrapper]
    assert {name: tuple(value.shape) for name, value in state.items()} == {
        name: info.shape for name, info in contents.tensors.items()
    }
    with TorchBinReader([contents], ignore_crc=True) as reader:
        for name, value in state.items():
            assert reader.read(name).tobytes() == raw(value)


BASES = [
    zipped(pickled(dictionary({"a": tensor(), "b": tensor(shape=(6,), strides=(1,))}))),
    streamed(pickled(dictionary({"model": dictionary({"a": tensor(storage(view=b"N"))})}))),
]
EDITS = st.lists(
    st.tuples(st.integers(0, 700), st.integers(0, 4), st.binary(max_size=4)), min_size=1, max_size=4
)


@given(st.sampled_from(BASES), EDITS)
def test_mutated_files_raise_only_errors(
    tmp_path_factory: pytest.TempPathFactory, base: bytes, edits: list[tuple[int, int, bytes]]
) -> None:
    content = base
    for at, count, new in edits:
        content = content[:at] + new + content[at + count :]
    try:
        contents = scanned(tmp_path_factory.getbasetemp(), content, ignore_crc=True)
    except (VerificationError, SourceError) as error:
        assert "\n" not in str(error)
        return
    assert_torch_agrees(contents)


SMALL = st.integers(-1, 7)


@given(
    st.sampled_from(["torch\nFloatStorage", "torch\nHalfStorage", "torch.storage\nUntypedStorage"]),
    st.sampled_from(["torch\nfloat16", "torch\nfloat64", "torch\nuint16", "torch\nfloat8_e5m2"]),
    st.lists(st.tuples(SMALL, SMALL), max_size=3),
    SMALL,
    st.sampled_from(["_rebuild_tensor_v2", "_rebuild_tensor_v3"]),
)
def test_scanned_files_agree_with_torch(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    dtype: str,
    layout: list[tuple[int, int]],
    offset: int,
    function: str,
) -> None:
    width = {"torch\nFloatStorage": 4, "torch\nHalfStorage": 2}.get(kind, 1)
    value = tensor(
        storage(kind=kind, count=24 // width),
        offset=offset,
        shape=tuple(n for n, _ in layout),
        strides=tuple(step for _, step in layout),
        rest=b"\x89" + ORDERED + (f"c{dtype}\n".encode() if function.endswith("3") else b""),
        function=f"torch._utils\n{function}",
    )
    try:
        contents = scanned(
            tmp_path_factory.getbasetemp(), zipped(pickled(dictionary({"a": value})))
        )
    except VerificationError:
        return
    assert_torch_agrees(contents)


def test_an_instruction_of_a_later_protocol_than_torch_reads(tmp_path: Path) -> None:
    program = pickled(dictionary({"a": tensor(storage())}))
    framed = program[:2] + b"\x95" + struct.pack("<Q", 1 << 40) + program[2:]  # a wrong length
    refused(tmp_path, zipped(framed), "its pickle is of protocol 4, where torch reads 2")
