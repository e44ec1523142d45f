"""Pickles of a few megabytes that would take hours or gigabytes if each instruction were followed.

An instruction of two bytes can recall a value of a million items from the memo, so that work that
is linear in the items of a value is quadratic in the size of the file.
"""

import resource
import struct
import time
from pathlib import Path

import pytest

from tests.formats.pickles import (
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

MANY = 400_000
STEPS = "more than 1000000 instructions"


def colliding(count: int) -> bytes:
    """Keys of a dict that have the same hash: multiples of the modulus of numbers' hashes."""
    return b"".join(number(k * ((1 << 61) - 1)) + b"N" for k in range(1, count))


PICKLES = {
    "a hash of 2 ** 200 steps": (b"})" + b"q\1h\1\x86" * 200 + b"Ns", "a dict has for a key"),
    "2 ** 200 references": (
        dictionary({"a": b")" + b"q\1h\1\x86" * 200}),
        "'a' is not a tensor",
    ),
    "deep tuples": (b")" + b"\x85" * 990_000, "it holds a tuple"),
    "deep dicts": (b"}" + text("a") + b"}" + (text("a") + b"}") * 150_000, "damaged"),
    "instructions": (b"N" * 5_000_000, STEPS),
    "dicts": (b"}" * 5_000_000, STEPS),
    "a string": (text("x" * (1 << 23)), "its record 'data.pkl' has 8388616 bytes"),
    "wide strings": (b"(" + text("\U0001f600" * (1 << 20)) + b"t", "it holds a tuple"),
    "keys of one hash": (b"}(" + colliding(80_000) + b"u", "a dict has for a key"),
    "copies of pairs": (
        b"ccollections\nOrderedDict\nq\1](" + b"".join(
            text(f"{k:x}") + b"N\x86" for k in range(100_000)
        ) + b"e\x85q\2" + b"h\1h\2R" * 100_000,
        STEPS,
    ),
    "long keys of storages": (
        b"".join(
            b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("k" * (1 << 20))
            + text("cpu") + number(6) + b"tQ" for _ in range(6)
        ),
        "has the key 'kkkk",
    ),
    "long shapes": (
        b"(" + b"K\1" * MANY + b"tq\2" + tensor().replace(numbers((2, 3)), b"h\2"),
        "not a plain one",
    ),
    "one structure under many names": (
        b"}(" + text("list") + b"](" + b"N" * MANY + b"eq\2" + b"".join(
            text(f"{k:x}") + b"h\2" for k in range(100_000)
        ) + text("model") + dictionary({"a": tensor(), "b": b"N"}) + b"u",
        "entry 'b' is not a tensor",
    ),
    "a number of two gigabytes": (b"\x8b" + struct.pack("<i", (1 << 31) - 1), "damaged"),
    "digits": (b"I" + b"9" * 8_000_000 + b"\n", "damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", PICKLES)
def test_a_slow_pickle_is_refused_in_seconds(tmp_path: Path, name: str) -> None:
    code, message = PICKLES[name]
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(zipped(pickled(code)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    with pytest.raises(VerificationError) as caught:
        inspect(path)
    assert time.process_time() - begin < 8
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 250 << 10  # in KiB
