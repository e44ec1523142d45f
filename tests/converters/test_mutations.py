"""Random mutations of files of each format, which must be read or refused with one line.

Checksums are disabled, since they would detect most mutations.
"""

import os
import random
import re
import resource
import shutil
import signal
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from tests.converters.making import Sharded, save, save_safetensors, written
from zoo.errors import ZooError
from zoo.io.tensors.formats import Format
from zoo_converters import tensorflow, zoo_formats
from zoo_converters.hdf5_arrays import decode_arrays, list_arrays

SAFE, BIN, COMPOSER, HDF5, TENSORFLOW, NPY, GGUF, WORD_VECTORS = zoo_formats()
TABLES = Path(__file__).parents[1] / "fixtures" / "tensorflow"
PIECES = [b"\0", b"\xff", b"\x80", b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f", b"\xff" * 8]
STATE = {"a": torch.arange(6.0), "b": torch.ones(2, 3).T, "c": torch.nn.Parameter(torch.ones(2))}


def save_bin(folder: Path) -> None:
    torch.save(STATE, folder / "pytorch_model.bin")


def save_stream(folder: Path) -> None:
    path = folder / "pytorch_model.bin"
    torch.save(STATE, path, _use_new_zipfile_serialization=False)


def save_composer(folder: Path) -> None:
    torch.save({"state": {"model": STATE, "epoch": 1}}, folder / "ep0-ba9-rank0.pt")


def save_npy(folder: Path) -> None:
    written(folder)


def save_gguf(folder: Path) -> None:
    save(folder / "model.gguf")


def save_text_vectors(folder: Path) -> None:
    (folder / "words.vec").write_text("3 2\nthe 0.5 -1e-3\ncat 1 2\nna\u00efve 3 4\n")


def save_binary_vectors(folder: Path) -> None:
    rows = b"".join(word + b" " + struct.pack("<2f", 1, 2) for word in (b"the", b"cat", b"sat"))
    (folder / "vectors.bin").write_bytes(b"3 2\n" + rows)


def save_fasttext(folder: Path) -> None:
    """Write a model of two words, three buckets, and vectors of two numbers."""
    arguments = (2, 5, 1, 1, 5, 1, 2, 1, 3, 3, 4, 100)
    content = struct.pack("<ii12id", 793712314, 12, *arguments, 1e-4)
    content += struct.pack("<iiiqq", 2, 2, 0, 9, -1)
    for word in (b"the", b"cat"):
        content += word + struct.pack("<bqb", 0, 4, 0)
    content += struct.pack("<bqq10f", 0, 5, 2, *range(10))
    (folder / "cc.tiny.bin").write_bytes(content)


def save_table(folder: Path) -> None:
    for path in TABLES.glob("kinds*"):
        shutil.copy(path, folder)


def save_shards(folder: Path) -> None:
    Sharded(folder, SAFE, save_safetensors)


class Equal:
    """A checksum that is equal to any other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


FORMATS: Mapping[str, tuple[Format, Callable[[Path], None]]] = {
    "archive": (BIN.without_checksums(), save_bin),
    "stream": (BIN, save_stream),
    "composer": (COMPOSER.without_checksums(), save_composer),
    "npy": (NPY, save_npy),
    "gguf": (GGUF, save_gguf),
    "text-vectors": (WORD_VECTORS, save_text_vectors),
    "binary-vectors": (WORD_VECTORS, save_binary_vectors),
    "fasttext": (WORD_VECTORS, save_fasttext),
    "tensorflow": (TENSORFLOW, save_table),
    "shards": (SAFE, save_shards),
}


def mutated(content: bytes, choice: random.Random) -> bytes:
    """Mutate a file at one to eight positions."""
    raw = bytearray(content)
    for _ in range(choice.choice((1, 1, 2, 4, 8))):
        at = choice.randrange(len(raw) + 1)
        length = choice.choice((1, 2, 4, 8, 64))
        piece = choice.choice(PIECES)
        match choice.randrange(6):
            case 0:
                raw[at : at + 1] = bytes([choice.randrange(256)])
            case 1:
                del raw[at:]
            case 2:
                del raw[at : at + length]
            case 3:
                raw[at:at] = piece
            case 4:
                raw[at : at + len(piece)] = piece
            case 5:
                start = choice.randrange(len(raw) + 1)
                raw[at : at + length] = raw[start : start + length]
    return bytes(raw)


def read_all(form: Format, folder: Path) -> None:
    """Read every tensor; errors must have one line."""
    names = sorted(path.name for path in folder.iterdir())
    try:
        with form.open(folder, form.find(names)) as reader:
            for name in reader.tensors:
                reader.read(name)
    except ZooError as error:
        assert re.search(r"[\x00-\x1f\x7f-\x9f]", str(error)) is None
        assert len(str(error)) < 1000


def mutate(kind: str, folder: Path, cases: int, seed: int) -> None:
    form, save = FORMATS[kind]
    save(folder)
    files = {path: path.read_bytes() for path in sorted(folder.iterdir())}
    choice = random.Random(seed)
    for _ in range(cases):
        victim = choice.choice(list(files))
        victim.write_bytes(mutated(files[victim], choice))
        begin = time.process_time()
        read_all(form, folder)
        assert time.process_time() - begin < 5
        victim.write_bytes(files[victim])


@pytest.fixture(autouse=True)
def without_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorflow, "load_checksum", lambda: lambda content: Equal())


@pytest.mark.by_default("archive", "gguf", "tensorflow")
@pytest.mark.parametrize("kind", FORMATS)
def test_some_mutations(tmp_path: Path, kind: str) -> None:
    mutate(kind, tmp_path, 200, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
def test_many_mutations(tmp_path: Path, kind: str) -> None:
    mutate(kind, tmp_path, 20_000, seed=2)


def walk(path: Path) -> None:
    limits = {"memory": 192 << 20, "seconds": 20}
    names = list(list_arrays(str(path), limits))
    path.with_suffix(".names").write_text("\n".join(names))


def decode(path: Path) -> None:
    names = path.with_suffix(".names").read_text().splitlines()
    output = os.open(os.devnull, os.O_WRONLY)
    decode_arrays(str(path), names, output, {"memory": 192 << 20, "seconds": 20})


def forked(action: Callable[[Path], None], path: Path) -> tuple[int, int]:
    """Run an action in a fork, and return its exit status and its peak memory in KiB."""
    if not (child := os.fork()):
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            action(path)
            os._exit(0)
        except Exception:
            os._exit(3)
        finally:
            os._exit(9)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss


def mutate_hdf5(folder: Path, cases: int, seed: int) -> None:
    path = folder / "weights.hdf5"
    examples = []
    for version in ("earliest", "latest"):
        with h5py.File(path, "w", libver=version) as file:
            file["a"], file["group/b"] = np.arange(10.0), np.float32(1)
            settings = {"chunks": (7, 7), "compression": "gzip", "fletcher32": True}
            file.create_dataset("group/c", data=np.zeros((20, 20)), **settings)
        examples.append(path.read_bytes())
    choice = random.Random(seed)
    path.with_suffix(".names").touch()
    for _ in range(cases):
        path.write_bytes(mutated(choice.choice(examples), choice))
        for action in (walk, decode):
            status, peak = forked(action, path)
            # includes crashes of the library, see test_hdf5.py
            assert status in (0, 3, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGFPE)
            assert peak < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + (250 << 10)
            if status:
                break


@pytest.mark.long
def test_some_mutations_of_hdf5(tmp_path: Path) -> None:
    mutate_hdf5(tmp_path, 60, seed=1)


@pytest.mark.long
def test_many_mutations_of_hdf5(tmp_path: Path) -> None:
    mutate_hdf5(tmp_path, 5000, seed=2)


SPECIAL = {
    "pytorch_model.bin": (BIN, ("pytorch_model.bin",)),
    "weights.hdf5": (HDF5, ("weights.hdf5",)),
    "kinds.ckpt.index": (TENSORFLOW, ("kinds.ckpt.index", "kinds.ckpt.data-00000-of-00001")),
    "kinds.ckpt.data-00000-of-00001": (
        TENSORFLOW,
        ("kinds.ckpt.index", "kinds.ckpt.data-00000-of-00001"),
    ),
    "params_shapes.json": (NPY, ("params_shapes.json", "params_0.npy")),
    "model.gguf": (GGUF, ("model.gguf",)),
    "params_0.npy": (NPY, ("params_shapes.json", "params_0.npy")),
    "model.safetensors": (SAFE, ("model.safetensors",)),
    "model.safetensors.index.json": (SAFE, ("model.safetensors.index.json", "a")),
}


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    signal.alarm(seconds)  # ends the process if a reader waits for a pipe
    yield
    signal.alarm(0)


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize("name", SPECIAL)
def test_pipes_and_devices_are_refused(tmp_path: Path, name: str, device: bool) -> None:
    save_table(tmp_path)
    save_npy(tmp_path)
    path = tmp_path / name
    path.unlink(missing_ok=True)
    if device:
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    form, names = SPECIAL[name]
    with at_most(20), pytest.raises(ZooError, match="not a regular file"):
        form.open(tmp_path, names)
