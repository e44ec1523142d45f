"""Mutations of protobuf messages, field by field: SentencePiece models and ONNX graphs."""

from dataclasses import dataclass, replace
from random import Random

from tests.fuzz.octets import BYTES

VARINT = 0
FIXED64 = 1
LENGTH = 2
FIXED32 = 5
INTEGERS = (0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 10**10)
STRINGS = (b"", b"a", b"\0", b"\xff", b"\x1b[31m\nerror: x", b"../escape", b"a" * 100_000)


@dataclass(frozen=True)
class Field:
    """Field of a message; ``value`` is an integer for a varint, and bytes otherwise."""

    number: int
    kind: int
    value: int | bytes


def parse_message(data: bytes) -> list[Field] | None:
    """Return the fields of a message, or ``None`` if the bytes are not a message."""
    fields = []
    at = 0
    try:
        while at < len(data):
            key, at = _varint(data, at)
            number = key >> 3
            kind = key & 7
            value: int | bytes
            if kind == VARINT:
                value, at = _varint(data, at)
            else:
                if kind == LENGTH:
                    length, at = _varint(data, at)
                else:
                    length = {FIXED64: 8, FIXED32: 4}[kind]
                value = data[at : at + length]
                at = at + length
            if at > len(data) or number == 0:
                return None
            fields.append(Field(number, kind, value))
    except (IndexError, KeyError):
        return None
    return fields


def dump_message(fields: list[Field]) -> bytes:
    return b"".join(map(_dump_field, fields))


def message_mutation(data: bytes, random: Random) -> bytes:
    """Change one field at a random depth, and update the lengths of enclosing messages."""
    fields = parse_message(data)
    if not fields:
        return random.choice(BYTES)(data, random) if data else b"\0"
    at = random.randrange(len(fields))
    field = fields[at]
    nested = parse_message(field.value) if isinstance(field.value, bytes) else None
    if nested and isinstance(field.value, bytes) and random.random() < 0.75:
        fields[at] = replace(field, value=message_mutation(field.value, random))
        return dump_message(fields)
    change = random.randrange(7)
    if change == 0:
        del fields[at]
    elif change == 1:
        fields[at:at] = [field] * random.choice((1, 2, 1000))
    elif change == 2:
        fields[at] = replace(field, number=random.choice((1, 2, field.number + 1, 5000)))
    elif change == 3:
        other = random.randrange(len(fields))
        fields[at] = fields[other]
        fields[other] = field
    else:
        fields[at] = replace(field, value=_odd(field, random))
    return dump_message(fields)


def _odd(field: Field, random: Random) -> int | bytes:
    if isinstance(field.value, int):
        return random.choice((*INTEGERS, field.value + 1, max(field.value - 1, 0)))
    if field.kind == LENGTH:
        changed = random.choice(BYTES)(field.value, random) if field.value else b"x"
        return random.choice((changed, *STRINGS))
    floats = (b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\xff" * 4, b"\0" * 4)
    return (random.choice(floats) * 2)[: len(field.value)]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at = at + 1
        shift = shift + 7
        if not byte & 0x80:
            return value, at
        if shift > 63:
            raise IndexError


def _dump_field(field: Field) -> bytes:
    key = _dump_varint(field.number << 3 | field.kind)
    if isinstance(field.value, int):
        return key + _dump_varint(field.value)
    return key + (_dump_varint(len(field.value)) if field.kind == LENGTH else b"") + field.value


def _dump_varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
