"""Reading of SentencePiece model files: a protocol buffer of pieces and options."""

import math
import struct
from dataclasses import dataclass
from typing import NamedTuple

from zoo.errors import VerificationError
from zoo.io.limits import MAX_PIECE_LENGTH
from zoo.io.protobuf import Value, as_bytes, as_int, fields
from zoo.tokenizers.source_files import PIECE_MODELS, SourceFiles

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM = 1
BPE = 2


class Piece(NamedTuple):
    """A piece of the vocabulary."""

    text: str  # text of the piece; ``\u2581`` for a space
    score: float  # log-probability (unigram), or rank of the merge (BPE)
    kind: int  # type of the piece: ``NORMAL`` and so on


@dataclass(frozen=True)
class PieceModel:
    """Contents of a model file."""

    pieces: tuple[Piece, ...]  # pieces in the order of their ids
    kind: int  # algorithm, ``UNIGRAM`` or ``BPE``
    unknown: int  # id of the unknown piece
    charsmap: bytes  # compiled character map of the normalization; empty for none
    leading_space: bool  # insert a space at the start of a text
    single_spaces: bool  # strip spaces around a text, and collapse those within
    bytes_for_unknown: bool  # encode unknown characters as byte pieces


def piece_model(files: SourceFiles) -> str | None:
    """Return the name of the model file of a directory, or ``None``."""
    return next((name for name in PIECE_MODELS if files.has(name)), None)


def read_piece_model(files: SourceFiles, name: str) -> PieceModel:
    """Read a model file."""
    # Implemented here because the sentencepiece library is a C++ extension that would be needed for
    # these few fields only, and would parse untrusted files within the process.
    #
    # Field numbers are from ``sentencepiece_model.proto``; the wire format is described in
    # https://protobuf.dev/programming-guides/encoding.
    origin = str(files.path(name))
    content = files.bytes(name)
    try:
        model = _model(content)
    except (ValueError, IndexError, struct.error) as error:
        raise VerificationError(f"{origin} is not a sentencepiece model: {error}") from error
    if not model.pieces:
        raise VerificationError(f"{origin} is not a sentencepiece model: it has no pieces")
    if not 0 <= model.unknown < len(model.pieces):
        raise VerificationError(
            f"{origin}: the unknown piece is {model.unknown}, which does not exist"
        )
    return model


def _model(content: bytes) -> PieceModel:
    """Parse fields 1 to 3: pieces, trainer options, normalizer options."""
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for number, value in fields(content):
        if number == 1:
            pieces.append(_piece(as_bytes(value)))
        elif number in (2, 3):
            (trainer if number == 2 else normalizer).update(fields(as_bytes(value)))
    kind = trainer.get(3, UNIGRAM)
    if kind not in (UNIGRAM, BPE):
        raise ValueError(f"model_type = {kind!r} is not implemented, only unigram and bpe are")
    if trainer.get(24, 0):
        raise ValueError("treat_whitespace_as_suffix is not implemented")
    if not normalizer.get(5, 1):
        raise ValueError("escape_whitespaces = false is not implemented")
    return PieceModel(
        tuple(pieces),
        kind=as_int(kind),
        unknown=as_int(trainer.get(40, 0)),
        charsmap=as_bytes(normalizer.get(2, b"")),
        leading_space=bool(normalizer.get(3, 1)),
        single_spaces=bool(normalizer.get(4, 1)),
        bytes_for_unknown=bool(trainer.get(35, 0)),
    )


def _piece(content: bytes) -> Piece:
    text = b""
    score = 0.0
    kind = NORMAL
    for number, value in fields(content):
        if number == 1:
            text = as_bytes(value)
        elif number == 2:
            (score,) = struct.unpack("<f", as_bytes(value))
        elif number == 3:
            kind = as_int(value)
    if not text or not math.isfinite(score) or not NORMAL <= kind <= BYTE:
        raise ValueError(f"a piece is {text!r} of kind {kind} and score {score}")
    if b"\0" in text or len(text) > MAX_PIECE_LENGTH:  # as sentencepiece does
        raise ValueError(f"a piece is {text[:100]!r}, of {len(text)} bytes")
    return Piece(text.decode("utf-8"), score, kind)
