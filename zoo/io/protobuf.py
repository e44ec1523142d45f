"""Reading and writing protocol buffers without their compiler: the fields of one message.

The wire format is described in https://protobuf.dev/programming-guides/encoding.
"""

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LENGTHS = {FIXED64: 8, FIXED32: 4}

Value = int | bytes


def fields(content: bytes) -> Iterator[tuple[int, Value]]:
    """Yield number and value of each field of a message.

    Yields:
        a number for a varint, else the field's bytes: those of a fixed-size number too.

    Raises:
        ValueError, IndexError: it is not a message, or ends too early.
    """
    at, end = 0, len(content)
    while at < end:
        key, at = varint(content, at)
        number, wire = key >> 3, key & 7
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
    """Return a number of 7 bits a byte, the lowest first, and the place after it.

    Raises:
        ValueError, IndexError: it has no end.
    """
    value, shift = 0, 0
    for place in range(at, at + 10):
        byte = content[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise ValueError("a number is too long")


def as_bytes(value: Value) -> bytes:
    """Return a field's bytes.

    Raises:
        ValueError: it is a number.
    """
    if isinstance(value, int):
        raise ValueError("a number stands where bytes are due")
    return value


def as_int(value: Value) -> int:
    """Return a field's number.

    Raises:
        ValueError: it is bytes.
    """
    if isinstance(value, bytes):
        raise ValueError("bytes stand where a number is due")
    return value


def field(number: int, value: "Value | str | float") -> bytes:
    """Write a field.

    Args:
        number: the field's.
        value: an ``int`` that is not negative is written as a varint; bytes and a string with
            their length; a ``float`` as a double.
    """
    if isinstance(value, float):
        return _key(number, FIXED64) + struct.pack("<d", value)
    if isinstance(value, int):
        return _key(number, VARINT) + _varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _key(number, BYTES) + _varint(len(content)) + content


def field_of_single(number: int, value: float) -> bytes:
    """Write a field that is a ``float`` of 4 bytes."""
    return _key(number, FIXED32) + struct.pack("<f", value)


def _key(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
