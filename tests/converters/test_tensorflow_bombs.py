"""Malicious TensorFlow indexes: huge tensors, quadratic time, overlaps."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import google_crc32c
import pytest

from zoo.errors import VerificationError
from zoo.io.crc32c import masked
from zoo.io.protobuf import field
from zoo.io.tensors.formats import TensorReader
from zoo_converters.sorted_table import FOOTER_BYTES, MAGIC
from zoo_converters.tensorflow import TensorFlow

DATA = bytes(64)
HEADER = field(1, 1)


def varint(value: int) -> bytes:
    return field(0, value)[1:]


def fixed32(number: int, value: int) -> bytes:
    return bytes([number << 3 | 5]) + value.to_bytes(4, "little")


def entry(shape: Iterable[int] = (4,), offset: int = 0, size: int = 16, shard: int = 0) -> bytes:
    """Return a ``BundleEntryProto`` of floats."""
    dims = b"".join(field(2, field(1, n)) for n in shape)
    crc = masked(google_crc32c.value(DATA[offset : offset + size]))
    content = field(1, 1) + field(2, dims) + field(3, shard) + field(4, offset) + field(5, size)
    return content + fixed32(6, crc)


def stored(content: bytes, kind: int = 0) -> bytes:
    """Return a block with its trailer."""
    raw = content + bytes([kind])
    return raw + masked(google_crc32c.value(raw)).to_bytes(4, "little")


def block(entries: Iterable[tuple[int, bytes, bytes]], kind: int = 0) -> bytes:
    """Return a block of entries (length of the shared prefix, rest of the key, value)."""
    rows = [varint(n) + varint(len(k)) + varint(len(v)) + k + v for n, k, v in entries]
    return stored(b"".join(rows) + bytes(4) + (1).to_bytes(4, "little"), kind)


def table(data: bytes, times: int = 1) -> bytes:
    """Return a table of one block, which the index may repeat."""
    handle = varint(0) + varint(len(data) - 5)
    index = block((0, number.to_bytes(4, "big"), handle) for number in range(times))
    empty = block([])
    footer = varint(len(data)) + varint(len(empty) - 5)
    footer += varint(len(data) + len(empty)) + varint(len(index) - 5)
    footer = footer.ljust(FOOTER_BYTES - 8, b"\0") + MAGIC.to_bytes(8, "little")
    return data + empty + index + footer


def rows(*entries: tuple[bytes, bytes], header: bytes = HEADER) -> bytes:
    return table(block((0, key, value) for key, value in ((b"", header), *entries)))


def opened(folder: Path, index: bytes) -> TensorReader:
    (folder / "m.ckpt.index").write_bytes(index)
    (folder / "m.ckpt.data-00000-of-00001").write_bytes(DATA)
    return TensorFlow().open(folder, ("m.ckpt.index", "m.ckpt.data-00000-of-00001"))


def test_unmodified_index_is_read(tmp_path: Path) -> None:
    index = rows((b"a", entry()), (b"b", entry((2, 4), 16, 32)))
    with opened(tmp_path, index) as reader:
        assert reader.read("b").shape == (2, 4)


HOSTILE: dict[
    str, tuple[Callable[[], bytes], str]
] = {  # name -> function that makes the index, and the message
    "a block many times": (
        lambda: table(block([(0, b"", HEADER), (0, b"a", entry())]), 100_000),
        "its blocks are not in order",
    ),
    "keys that grow": (
        lambda: table(
            block(
                [(0, b"", HEADER), (0, b"a" * 1000, entry())]
                + [(1000 + k, b"a", entry()) for k in range(100_000)]
            )
        ),
        "length of a key is 1,001",
    ),
    "keys that share much": (
        lambda: table(block([(0, b"", HEADER), (0, b"a" * (1 << 20), entry())])),
        "length of a key is 1,048,576",
    ),
    "keys that repeat": (
        lambda: rows((b"a", entry()), (b"a", entry((4,), 16))),
        "keys are not in order",
    ),
    "many dimensions": (lambda: rows((b"a", entry([1] * 1_000_000))), "more than 64 dimensions"),
    "a product of dimensions": (
        lambda: rows((b"a", entry([1 << 62] * 60))),
        "does not fit its shape",
    ),
    "tensors that overlap": (
        lambda: rows((b"a", entry()), (b"b", entry((8,), 12, 32))),
        "a and b overlap",
    ),
    "an empty tensor between": (
        lambda: rows((b"a", entry()), (b"b", entry((0,), 4, 0)), (b"c", entry((4,), 8))),
        "a and c overlap",
    ),
    "many data files": (
        lambda: rows((b"a", entry()), header=field(1, 10**9)),
        "has 1000000000 data files",
    ),
    "a far data file": (
        lambda: rows((b"a", entry(shard=10**9))),
        "the data file with a is missing",
    ),
    "a far offset": (lambda: rows((b"a", entry(offset=1 << 62))), "a extends past its end"),
    "a number without end": (
        lambda: rows((b"a", b"\x08" + b"\xff" * 1000)),
        "a number is too long",
    ),
    "control characters": (
        lambda: rows((b"a\nerror: b", entry())),
        "cannot be the name of a tensor",
    ),
    "metadata": (lambda: rows((b"__metadata__", entry())), "cannot be the name of a tensor"),
    "no text": (lambda: rows((b"\xff", entry())), "can't decode"),
    "compression": (lambda: table(block([(0, b"", HEADER)], kind=1)), "a block is compressed"),
    "no header": (lambda: table(block([])), "it has no header"),
    "restarts": (lambda: table(stored(b"\xff\xff\xff\x7f")), "shorter than its restarts"),
    "too large": (lambda: bytes((1 << 24) + 1), "size of the index in bytes is 16,777,217"),
}


@pytest.mark.by_default("a block many times", "too large", "keys that share much")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_index_is_refused_quickly(tmp_path: Path, name: str) -> None:
    make_index, message = HOSTILE[name]
    index = make_index()
    begin = time.process_time()
    with pytest.raises(VerificationError) as caught:
        opened(tmp_path, index)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    assert time.process_time() - begin < 5


@pytest.mark.long
def test_many_tensors(tmp_path: Path) -> None:
    value = entry((0,), 0, 0)
    names = [(0, number.to_bytes(3, "big").hex().encode(), value) for number in range(50_001)]
    with pytest.raises(VerificationError, match="number of tensors is 50,001"):
        opened(tmp_path, table(block([(0, b"", HEADER), *names])))
