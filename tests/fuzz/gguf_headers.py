"""Mutations of the header of a GGUF file: keys, values and the table of tensors."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from tests.fuzz.octets import LENGTHS

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
SCALARS |= {12: "d"}
STRING = 8
ARRAY = 9
ALIGNMENT = 32
STRINGS = (b"", b"a" * 100_000, b"\xff\xfe", b"\0", b"{}", b"[" * 50_000, b"\x1b[2J", "é".encode())
NAMES = (b"general.architecture", b"general.alignment", b"bert.block_count", b"../a", b"")
KINDS = (0, 1, 2, 8, 9, 10, 12, 15, 20, 30, 39, 40, 41, 99, 2**32 - 1)


@dataclass(frozen=True)
class Entry:
    """A key, its type, and the bytes of its value."""

    name: bytes
    kind: int
    value: bytes


@dataclass(frozen=True)
class Tensor:
    name: bytes
    shape: tuple[int, ...]
    kind: int
    offset: int


def header_mutation(data: bytes, random: Random) -> bytes:
    """Change one part of the header, and keep the rest sound."""
    entries, tensors, end = parse(data)
    change: Callable[..., object] = random.choice((_change_entries, _change_tensors))
    change(entries, tensors, random)
    counts = [len(tensors), len(entries)]
    if random.random() < 0.1:
        counts[random.randrange(2)] = random.choice((*LENGTHS, len(tensors) + 1))
    parts = [data[:8], struct.pack("<QQ", *counts)]
    parts += [_string(e.name) + struct.pack("<I", e.kind) + e.value for e in entries]
    parts += [_dump_tensor(tensor) for tensor in tensors]
    header = b"".join(parts)
    return header + bytes(-len(header) % ALIGNMENT) + data[end + -end % ALIGNMENT :]


def parse(data: bytes) -> tuple[list[Entry], list[Tensor], int]:
    """Return the entries and tensors of a sound file, and where its header ends."""
    count, keys = struct.unpack_from("<QQ", data, 8)
    at = 24
    entries = list[Entry]()
    tensors = list[Tensor]()
    for _ in range(keys):
        name, at = _read_string(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        end = _end(data, at + 4, kind)
        entries.append(Entry(name, kind, data[at + 4 : end]))
        at = end
    for _ in range(count):
        name, at = _read_string(data, at)
        (axes,) = struct.unpack_from("<I", data, at)
        *shape, kind, offset = struct.unpack_from(f"<{axes}QIQ", data, at + 4)
        tensors.append(Tensor(name, tuple(shape), kind, offset))
        at += 4 + 8 * axes + 12
    return entries, tensors, at


def _change_entries(entries: list[Entry], tensors: list[Tensor], random: Random) -> None:
    at = random.randrange(len(entries))
    entry = entries[at]
    number = random.choice(LENGTHS)
    change = random.randrange(8)
    if change == 0:
        del entries[at]
    elif change == 1:
        entries.insert(random.randrange(len(entries)), entry)
    elif change == 2:
        entries[at] = replace(entry, name=random.choice(NAMES))
    elif change == 3:
        entries[at] = replace(entry, kind=random.choice((*SCALARS, STRING, ARRAY, 13, 2**32 - 1)))
    elif change == 4:
        entries[at] = replace(entry, kind=STRING, value=_string(random.choice(STRINGS)))
    elif change == 5 and entry.kind == ARRAY:
        inner, count = struct.unpack_from("<IQ", entry.value)
        count = random.choice((number, count + 1, max(count - 1, 0)))
        entries[at] = replace(entry, value=struct.pack("<IQ", inner, count) + entry.value[12:])
    elif change == 6:  # arrays in arrays
        depth = random.choice((1, 2, 10_000))
        value = struct.pack("<IQ", ARRAY, 1) * depth + struct.pack("<IQ", 4, 0)
        entries[at] = replace(entry, kind=ARRAY, value=value)
    else:
        code = SCALARS.get(entry.kind, "Q")
        odd = random.choice((number, 0, 1, 2, 3, 33, 1 << 20))
        raw = struct.pack("<Q", odd)[: struct.calcsize(code)]
        if code in "fd":
            raw = struct.pack(f"<{code}", random.choice((0.0, -1.0, 1e-30, 1e30, float("nan"))))
        entries[at] = replace(entry, kind=entry.kind if entry.kind in SCALARS else 10, value=raw)


def _change_tensors(entries: list[Entry], tensors: list[Tensor], random: Random) -> None:
    at = random.randrange(len(tensors))
    other = random.randrange(len(tensors))
    tensor = tensors[at]
    number = random.choice(LENGTHS)
    change = random.randrange(8)
    if change == 0:
        del tensors[at]
    elif change == 1:
        tensors.insert(other, tensor)
    elif change == 2:
        name = random.choice((tensors[other].name, *NAMES, *STRINGS))
        tensors[at] = replace(tensor, name=name)
    elif change == 3:
        shape = list(tensor.shape)
        shape[random.randrange(len(shape))] = random.choice((number, 0, 1, 31, 33))
        tensors[at] = replace(tensor, shape=tuple(shape))
    elif change == 4:
        shapes = ((), tensor.shape[::-1], (*tensor.shape, 1), (1,) * 100, tensors[other].shape)
        tensors[at] = replace(tensor, shape=random.choice(shapes))
    elif change == 5:
        tensors[at] = replace(tensor, kind=random.choice(KINDS))
    elif change == 6:
        offset = random.choice((number, tensors[other].offset, tensor.offset + 1))
        tensors[at] = replace(tensor, offset=offset)
    else:
        tensors[at], tensors[other] = (
            replace(tensor, name=tensors[other].name),
            replace(tensors[other], name=tensor.name),
        )


def _end(data: bytes, at: int, kind: int) -> int:
    if kind in SCALARS:
        return at + struct.calcsize(SCALARS[kind])
    if kind == STRING:
        return _read_string(data, at)[1]
    inner, count = struct.unpack_from("<IQ", data, at)
    at += 12
    for _ in range(count):
        at = _end(data, at, inner)
    return at


def _read_string(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + length], at + 8 + length


def _string(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _dump_tensor(tensor: Tensor) -> bytes:
    axes = len(tensor.shape)
    numbers = struct.pack(f"<I{axes}QIQ", axes, *tensor.shape, tensor.kind, tensor.offset)
    return _string(tensor.name) + numbers
