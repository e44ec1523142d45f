"""Reading and writing of the fields of one protocol buffer message."""

import struct
from collections.abc import Iterator

VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5
LENGTHS = {FIXED64: 8, FIXED32: 4}

Value = int | bytes


def fields(content: bytes) -> Iterator[tuple[int, Value]]:
    """Yield each field of a message: its number, and an ``int`` for a varint or else raw bytes."""
    # Implemented here because the ``protobuf`` package needs compiled message classes and parses a
    # whole message at once; TensorFlow's index entries and SentencePiece models have a few fields
    # of interest. The wire format is described in https://protobuf.dev/programming-guides/encoding.
    at = 0
    end = len(content)
    while at < end:
        key, at = varint(content, at)
        number = key >> 3
        wire = key & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if wire == VARINT:
            value, at = varint(content, at)
            yield number, value
            continue
        length = LENGTHS.get(wire)
        if length is None:
            if wire != BYTES:
                raise ValueError(f"a field has the wire type {wire}")
            length, at = varint(content, at)
        if length > end - at:
            raise ValueError("it ends too early")
        yield number, content[at : at + length]
        at += length


def varint(content: bytes, at: int) -> tuple[int, int]:
    """Decode a varint; return its value and the offset of the byte after it."""
    value = 0
    shift = 0
    for place in range(at, at + 10):
        byte = content[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise ValueError("a number is too long")


def as_bytes(value: Value) -> bytes:
    """Return the value of a length-delimited field."""
    if isinstance(value, int):
        raise ValueError("a varint where bytes are expected")
    return value


def as_int(value: Value) -> int:
    """Return the value of a varint field."""
    if isinstance(value, bytes):
        raise ValueError("bytes where a varint is expected")
    return value


def field(number: int, value: "Value | str | float") -> bytes:
    """Encode a field; an ``int`` becomes a varint, a ``float`` a double."""
    if isinstance(value, float):
        return _key(number, FIXED64) + struct.pack("<d", value)
    if isinstance(value, int):
        return _key(number, VARINT) + _varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _key(number, BYTES) + _varint(len(content)) + content


def _key(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
