"""The pieces of a model file as a model of the tokenizer library, with the same ids and choices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.errors import VerificationError
from zoo.io.untrusted import rust_parsing
from zoo.tokenizers.sentencepiece.proto import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    USER_DEFINED,
    Piece,
    PieceModel,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NEVER = 1000.0  # how much worse than the worst piece is a piece that no text may be split into
DIGIT_COMMA = 100.0
SYMBOL = -0.1  # better than any piece


@dataclass(frozen=True)
class VocabLayout:
    """Which tokens have ids besides the pieces.

    Attributes:
        first: tokens before the pieces.
        skip: how many of the model's own pieces they take the place of.
        last: tokens after the pieces, those alone that are no pieces.
        sentinels: how many ``<extra_id_N>`` follow, the highest number first.
        unknown: the token for what has no piece.
        split_digit_comma: whether a comma never is in one piece with the digit before it.
    """

    first: Sequence[str]
    skip: int
    last: Sequence[str]
    sentinels: int
    unknown: str
    split_digit_comma: bool

    def arrange(self, model: PieceModel) -> list[Piece]:
        """Return all pieces in order of their ids."""
        kept = model.pieces[self.skip :]
        texts = {piece.text for piece in kept}
        marks = [f"<extra_id_{n}>" for n in reversed(range(self.sentinels))]
        after = [token for token in (*self.last, *marks) if token not in texts]
        return [
            *(Piece(token, 0.0, CONTROL) for token in self.first),
            *kept,
            *(Piece(token, 0.0, CONTROL) for token in after),
        ]


def build_model(model: PieceModel, layout: VocabLayout, where: str) -> "Tokenizer":
    """Build a tokenizer that has the model, and neither normalizer nor anything else.

    Args:
        model: the model file's contents.
        layout: which tokens have ids besides the pieces.
        where: the file, for messages.

    Raises:
        VerificationError: the pieces contradict each other.
    """
    from tokenizers import Tokenizer, models

    pieces = layout.arrange(model)
    texts = [piece.text for piece in pieces]
    if len(set(texts)) < len(texts):
        twice = next(text for at, text in enumerate(texts) if text in texts[:at])
        raise VerificationError(f"{where}: the piece {twice!r} has two ids")
    if layout.unknown not in texts:
        raise VerificationError(
            f"{where} has no piece {layout.unknown}",
            "tokenizer_config.json must say what stands for the unknown",
        )
    spelled = model.bytes_for_unknown
    with rust_parsing(where, "a sentencepiece model"):
        if model.kind == BPE:
            ids = {text: number for number, text in enumerate(texts)}
            merges = list(_merges(pieces))
            options = {"unk_token": layout.unknown, "fuse_unk": True, "byte_fallback": spelled}
            return Tokenizer(models.BPE(ids, merges, **options))
        unknown = texts.index(layout.unknown)
        scores = list(zip(texts, _scores(pieces, layout), strict=True))
        return Tokenizer(models.Unigram(scores, unk_id=unknown, byte_fallback=spelled))


def _scores(pieces: Sequence[Piece], layout: VocabLayout) -> Iterator[float]:
    """Yield the scores that sentencepiece works with.

    Symbols that a user defined beat all else. What is no text is in no text.
    """
    worst = min((piece.score for piece in pieces if piece.kind == NORMAL), default=0.0)
    for text, score, kind in pieces:
        if kind == USER_DEFINED:
            yield SYMBOL
        elif kind != NORMAL:
            yield worst - NEVER
        elif layout.split_digit_comma and text[-1] == "," and text[-2:-1].isdigit():
            yield score - DIGIT_COMMA
        else:
            yield score


def _merges(pieces: Sequence[Piece]) -> Iterator[tuple[str, str]]:
    """Yield all ways to make a piece of two others, the pieces in order of their scores."""
    usable = {piece.text for piece in pieces if piece.kind in (NORMAL, USER_DEFINED, BYTE)}
    for piece in sorted(pieces, key=lambda piece: -piece.score):
        if piece.kind == NORMAL:
            for at in range(1, len(piece.text)):
                pair = piece.text[:at], piece.text[at:]
                if usable.issuperset(pair):
                    yield pair
