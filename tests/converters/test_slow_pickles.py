"""Pickles of a few megabytes that would take hours or gigabytes without limits.

An instruction of two bytes can recall a value of a million items from the memo, so that work linear
in the number of items is quadratic in the size of the file.
"""

import io
import resource
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.converters.pickles import (
    dictionary,
    number,
    numbers,
    pickled,
    tensor,
    text,
    zipped,
)
from zoo.errors import VerificationError
from zoo_converters.torch_file import inspect
from zoo_converters.zip_layout import END, END64, END64_AT

MANY = 400_000
STEPS = "more than 1000000 instructions"


def colliding(count: int) -> bytes:
    """Return dict keys with equal hashes: multiples of the modulus of integer hashes."""
    return b"".join(number(k * ((1 << 61) - 1)) + b"N" for k in range(1, count))


# name -> a function that makes the instructions, and the message
PICKLES: dict[str, tuple[Callable[[], bytes], str]] = {
    "a hash of 2 ** 200 steps": (
        lambda: b"})" + b"q\1h\1\x86" * 200 + b"Ns",
        "a dict has for a key",
    ),
    "2 ** 200 references": (
        lambda: dictionary({"a": b")" + b"q\1h\1\x86" * 200}),
        "'a' is not a tensor",
    ),
    "deep tuples": (lambda: b")" + b"\x85" * 990_000, "it holds a tuple"),
    "deep dicts": (lambda: b"}" + text("a") + b"}" + (text("a") + b"}") * 150_000, "damaged"),
    "instructions": (lambda: b"N" * 5_000_000, STEPS),
    "dicts": (lambda: b"}" * 5_000_000, STEPS),
    "a string": (lambda: text("x" * (1 << 23)), "its record 'data.pkl' has 8388616 bytes"),
    "wide strings": (lambda: b"(" + text("\U0001f600" * (1 << 20)) + b"t", "it holds a tuple"),
    "keys of one hash": (lambda: b"}(" + colliding(80_000) + b"u", "a dict has for a key"),
    "copies of pairs": (
        lambda: b"ccollections\nOrderedDict\nq\1](" + b"".join(
            text(f"{k:x}") + b"N\x86" for k in range(100_000)
        ) + b"e\x85q\2" + b"h\1h\2R" * 100_000,
        STEPS,
    ),
    "long keys of storages": (
        lambda: b"".join(
            b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("k" * (1 << 20))
            + text("cpu") + number(6) + b"tQ" for _ in range(6)
        ),
        "has the key 'kkkk",
    ),
    "long shapes": (
        lambda: b"(" + b"K\1" * MANY + b"tq\2" + tensor().replace(numbers((2, 3)), b"h\2"),
        "not a plain one",
    ),
    "one structure under many names": (
        lambda: b"}(" + text("list") + b"](" + b"N" * MANY + b"eq\2" + b"".join(
            text(f"{k:x}") + b"h\2" for k in range(100_000)
        ) + text("model") + dictionary({"a": tensor(), "b": b"N"}) + b"u",
        "entry 'b' is not a tensor",
    ),
    "a number of two gigabytes": (lambda: b"\x8b" + struct.pack("<i", (1 << 31) - 1), "damaged"),
    "digits": (lambda: b"I" + b"9" * 8_000_000 + b"\n", "damaged"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", PICKLES)
def test_a_slow_pickle_is_refused_in_seconds(tmp_path: Path, name: str) -> None:
    make, message = PICKLES[name]
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(zipped(pickled(make())))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    with pytest.raises(VerificationError) as caught:
        inspect(path)
    assert time.process_time() - begin < 8
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 250 << 10  # in KiB


def end_of_archive(directory: int, begin: int, locator: int) -> bytes:
    """Return the end records of a ZIP64 archive with given offsets."""
    end64 = END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, directory, begin)
    at = END64_AT.pack(b"PK\6\7", 0, locator, 1)
    return end64 + at + END.pack(b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, (1 << 32) - 1, (1 << 32) - 1, 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: end_of_archive(0, 30, (1 << 64) - 1), "cut off"),
        (lambda: end_of_archive(0, 30, 1 << 63), "cut off"),
        (lambda: end_of_archive((1 << 64) - 1, 1 << 63, 30), "not where it should be"),
        (
            lambda: end_of_archive(1 << 40, 30 - (1 << 40) & (1 << 64) - 1, 30),
            "not where it should be",
        ),
        (
            lambda: bytes(100 << 20) + end_of_archive(100 << 20, 30, 30 + (100 << 20)),
            "length of its ZIP directory is",
        ),
    ],
    ids=["locator", "sign", "directory", "wrap", "entries"],
)
def test_malformed_zip64(tmp_path: Path, make: Callable[[], bytes], message: str) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"PK\3\4".ljust(30, b"\0") + make())
    begin = time.process_time()
    with pytest.raises(VerificationError, match=message):
        inspect(path)
    assert time.process_time() - begin < 5


def test_record_offset_after_the_end(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(b"N"))
        archive.writestr("archive/data/0", bytes(24))
        archive.filelist[1].header_offset = (1 << 64) - 1
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(file.getvalue())
    with pytest.raises(VerificationError, match="cut off"):
        inspect(path)
