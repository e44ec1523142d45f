"""The model files of sentencepiece, read without it: a protocol buffer of pieces and options.

Numbers of fields are those of ``sentencepiece_model.proto``; the wire format is described in
https://protobuf.dev/programming-guides/encoding.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from zoo.errors import VerificationError
from zoo.tokenization.files import PIECE_MODELS, SourceFiles

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LENGTHS = {FIXED64: 8, FIXED32: 4}

Value = int | bytes


class Piece(NamedTuple):
    """A token of the model.

    Attributes:
        text: the piece; ``\\u2581`` stands for a space.
        score: its logarithmic probability, or what merges go by.
        kind: ``NORMAL`` and so on.
    """

    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class PieceModel:
    """What a model file says.

    Attributes:
        pieces: in order of their ids.
        kind: ``UNIGRAM`` or ``BPE``.
        unknown: the id of the piece for what has none.
        charsmap: what replaces characters, compiled; empty where nothing does.
        leading_space: whether a text is taken to begin with a space.
        single_spaces: whether spaces around a text are removed, and those within made single.
        bytes_for_unknown: whether what has no piece is spelled in bytes.
    """

    pieces: tuple[Piece, ...]
    kind: int
    unknown: int
    charsmap: bytes
    leading_space: bool
    single_spaces: bool
    bytes_for_unknown: bool


def piece_model(files: SourceFiles) -> str | None:
    """Return the name of a directory's model file, or ``None``."""
    return next((name for name in PIECE_MODELS if files.has(name)), None)


def read_piece_model(files: SourceFiles, name: str) -> PieceModel:
    """Read a model file.

    Raises:
        SourceError: it cannot be read.
        VerificationError: it is malformed, or asks for something that is not implemented.
    """
    where, content = str(files.path(name)), files.bytes(name)
    try:
        model = _model(content)
    except (ValueError, IndexError, struct.error) as error:
        raise VerificationError(f"{where} is no sentencepiece model: {error}") from error
    if not model.pieces:
        raise VerificationError(f"{where} is no sentencepiece model: it has no pieces")
    if not 0 <= model.unknown < len(model.pieces):
        raise VerificationError(f"{where}: the unknown piece is {model.unknown}, which is none")
    return model


def _model(content: bytes) -> PieceModel:
    """Fields 1 to 3: pieces, what the trainer was told, what normalizes."""
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for number, value in _fields(content):
        if number == 1:
            pieces.append(_piece(_bytes(value)))
        elif number in (2, 3):
            (trainer if number == 2 else normalizer).update(_fields(_bytes(value)))
    kind = trainer.get(3, UNIGRAM)
    if kind not in (UNIGRAM, BPE):
        raise ValueError(f"model_type = {kind!r} is not implemented, only unigram and bpe are")
    if trainer.get(24, 0):
        raise ValueError("treat_whitespace_as_suffix is not implemented")
    if not normalizer.get(5, 1):
        raise ValueError("escape_whitespaces = false is not implemented")
    return PieceModel(
        tuple(pieces),
        kind=_int(kind),
        unknown=_int(trainer.get(40, 0)),
        charsmap=_bytes(normalizer.get(2, b"")),
        leading_space=bool(normalizer.get(3, 1)),
        single_spaces=bool(normalizer.get(4, 1)),
        bytes_for_unknown=bool(trainer.get(35, 0)),
    )


def _piece(content: bytes) -> Piece:
    text, score, kind = b"", 0.0, NORMAL
    for number, value in _fields(content):
        if number == 1:
            text = _bytes(value)
        elif number == 2:
            (score,) = struct.unpack("<f", _bytes(value))
        elif number == 3:
            kind = _int(value)
    if not text or not math.isfinite(score) or not NORMAL <= kind <= BYTE:
        raise ValueError(f"a piece is {text!r} of kind {kind} and score {score}")
    return Piece(text.decode("utf-8"), score, kind)


def _fields(content: bytes) -> Iterator[tuple[int, Value]]:
    """Yield number and value of each field of a message: a number, or bytes."""
    at, end = 0, len(content)
    while at < end:
        key, at = _varint(content, at)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = _varint(content, at)
            yield number, value
            continue
        length = LENGTHS.get(wire)
        if length is None:
            if wire != BYTES:
                raise ValueError(f"a field has the wire type {wire}")
            length, at = _varint(content, at)
        if length > end - at:
            raise ValueError("it ends too early")
        yield number, content[at : at + length]
        at += length


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, the lowest first, and the place after it."""
    byte = content[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    for place in range(at + 1, at + 10):
        byte = content[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise ValueError("a number is too long")


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where text is due")
    return value


def _int(value: Value) -> int:
    if isinstance(value, bytes):
        raise ValueError("text stands where a number is due")
    return value
