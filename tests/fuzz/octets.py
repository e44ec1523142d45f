"""Mutations of bytes: flips, cuts, splices, wrong lengths, runs of zeros, repeated blocks."""

import gzip
from collections.abc import Callable
from random import Random

Mutate = Callable[[bytes, Random], bytes]
LENGTHS = (0, 1, 7, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def flip_bit(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def flip_bits(data: bytes, random: Random) -> bytes:
    for _ in range(random.randrange(2, 20)):
        data = flip_bit(data, random)
    return data


def set_byte(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    changed[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x1B, 0x22))
    return bytes(changed)


def truncate(data: bytes, random: Random) -> bytes:
    return data[: _near_an_end(data, random)]


def cut_start(data: bytes, random: Random) -> bytes:
    return data[_near_an_end(data, random) :]


def append(data: bytes, random: Random) -> bytes:
    return data + random.choice((bytes(1), bytes(4096), random.randbytes(100), data, b"\n"))


def splice(data: bytes, random: Random) -> bytes:
    """Copy one range over another."""
    start, length = _range(data, random)
    target = random.randrange(len(data))
    block = data[start : start + length]
    return data[:target] + block + data[target + len(block) :]


def repeat_block(data: bytes, random: Random) -> bytes:
    start, length = _range(data, random)
    block = data[start : start + length]
    return data[:start] + block * random.choice((2, 3, 100)) + data[start + length :]


def remove_block(data: bytes, random: Random) -> bytes:
    start, length = _range(data, random)
    return data[:start] + data[start + length :]


def insert(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    return data[:start] + random.randbytes(random.randrange(1, 64)) + data[start:]


def fill(data: bytes, random: Random) -> bytes:
    """Overwrite a range with one byte, as in a lost disk block."""
    start, length = _range(data, random)
    length = min(length, len(data) - start)
    byte: bytes = random.choice((b"\0", b"\xff"))
    return data[:start] + byte * length + data[start + length :]


def lie_about_length(data: bytes, random: Random) -> bytes:
    """Overwrite bytes, mostly early in the file, with an integer that may be read as a length."""
    width = random.choice((1, 2, 4, 8))
    if len(data) <= width:
        return data[::-1]
    limit = random.choice((min(64, len(data) - width), len(data) - width))
    start = random.randrange(limit + 1)
    value = random.choice((*LENGTHS, len(data), len(data) + 1, random.randrange(2**32)))
    number = int(value % (1 << 8 * width))
    changed = number.to_bytes(width, random.choice(("little", "big")))
    return data[:start] + changed + data[start + width :]


def nothing(data: bytes, random: Random) -> bytes:
    return b""


def noise(data: bytes, random: Random) -> bytes:
    return random.randbytes(random.randrange(1, 200))


BYTES: tuple[Mutate, ...] = (
    flip_bit,
    flip_bit,
    flip_bit,
    flip_bits,
    set_byte,
    truncate,
    cut_start,
    append,
    splice,
    repeat_block,
    remove_block,
    insert,
    fill,
    lie_about_length,
    lie_about_length,
    nothing,
    noise,
)


def change_line(data: bytes, random: Random) -> bytes:
    """Remove, repeat, empty, move or replace one line of a text."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    other = random.randrange(len(lines))
    change = random.randrange(6)
    if change == 0:
        del lines[at]
    elif change == 1:
        lines.insert(other, lines[at])
    elif change == 2:
        lines[at] = b""
    elif change == 3:
        lines[at], lines[other] = lines[other], lines[at]
    elif change == 4:
        lines[at] = random.choice(LINES)
    else:
        lines[at] += random.choice((b"\r", b" ", b"\t\t", b" x", b"\0", b"\xff", b"\xe2\x80\xa8"))
    return b"\n".join(lines)


LINES = (
    b"a" * 1_000_000,
    b" ",
    b"\x1b]0;title\x07",
    b"\rerror: all is well",
    b"\xff\xfe\xfd",
    b"\xef\xbb\xbf#version: 0.2",
    b"\0\0\0\0",
    "\u202eevil\u2028line".encode(),
    b"x y z w",
    b"##",
    b"[UNK]",
    b'"',
    b"<|endoftext|>",
)


def gzipped(change: Mutate) -> Mutate:
    """Return a mutation of the contents of a gzip file, in a valid gzip file."""

    def mutate(data: bytes, random: Random) -> bytes:
        return gzip.compress(change(gzip.decompress(data), random), mtime=0)

    mutate.__name__ = f"gzipped_{change.__name__}"
    return mutate


def _range(data: bytes, random: Random) -> tuple[int, int]:
    return random.randrange(len(data)), random.choice(
        (1, 2, 4, 8, 16, 64, 512, len(data) // 2 or 1)
    )


def _near_an_end(data: bytes, random: Random) -> int:
    """Return a random offset, or one within a few bytes of an end of the data."""
    offsets = (random.randrange(len(data)), min(random.randrange(9), len(data)))
    return random.choice((*offsets, len(data) - min(random.randrange(1, 9), len(data))))
