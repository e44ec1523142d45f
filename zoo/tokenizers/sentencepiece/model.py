"""Conversion of SentencePiece models to models of the ``tokenizers`` library."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.errors import VerificationError
from zoo.io.untrusted import rust_parsing
from zoo.overrides import override
from zoo.tokenizers.sentencepiece.proto import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNUSED,
    USER_DEFINED,
    Piece,
    PieceModel,
)
from zoo.tokenizers.source_files import VOCAB_JSON, SourceFiles
from zoo.tokenizers.untrusted.definition import check_ids

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNUSED_PENALTY = 1000.0  # Below the lowest score, for pieces that must not be used.
UNKNOWN_PENALTY = 10.0  # Below the lowest score, for unknown characters, as in sentencepiece.
DIGIT_COMMA_PENALTY = 100.0
SYMBOL_SCORE = -0.1  # Above the score of any piece.
# Before tokens of a dictionary that are no pieces of the model, so that no text has them: the
# normalizer removes this character. The decoder removes it as well.
FOREIGN = "\x01"


@dataclass(frozen=True)
class VocabLayout:
    """Layout of the vocabulary: tokens before and after the pieces."""

    first: Sequence[str]  # tokens before the pieces
    skip: int  # number of pieces of the model that ``first`` replaces
    last: Sequence[str]  # tokens after the pieces; those that are pieces are skipped
    sentinels: int  # number of ``<extra_id_N>`` after those, in descending order
    unknown: str  # unknown token
    split_digit_comma: bool  # always split a comma from the digit before it

    def arrange(self, model: PieceModel) -> list[Piece]:
        """Return all pieces in order of their ids."""
        model_pieces = model.pieces[self.skip :]
        texts = {piece.text for piece in model_pieces}
        pieces = [Piece(token, 0.0, CONTROL) for token in self.first]
        pieces += model_pieces
        sentinels = [f"<extra_id_{number}>" for number in reversed(range(self.sentinels))]
        for token in (*self.last, *sentinels):
            if token not in texts:
                pieces.append(Piece(token, 0.0, CONTROL))
        return pieces


@dataclass(frozen=True)
class DictionaryLayout(VocabLayout):
    """Layout of a vocabulary that has a file of its own, such as ``vocab.json``.

    Pieces of the model that the dictionary lacks are not used, and neither are tokens of the
    dictionary that are no pieces, except for single characters.
    """

    dictionary: Mapping[str, int]  # token -> id, from 0 without gaps
    control: Collection[str]  # tokens that are matched in the text before it is split

    @override
    def arrange(self, model: PieceModel) -> list[Piece]:
        model_pieces = {}
        for piece in model.pieces:
            if piece.kind in (NORMAL, USER_DEFINED, BYTE):
                model_pieces[piece.text] = piece
        unknown_score = min(piece.score for piece in model.pieces) - UNKNOWN_PENALTY
        pieces = []
        for token in sorted(self.dictionary, key=self.dictionary.__getitem__):
            if token in self.control or token == self.unknown:
                pieces.append(Piece(token, 0.0, CONTROL))
            elif token in model_pieces:
                pieces.append(model_pieces[token])
            elif len(token) == 1:  # sentencepiece returns unknown characters as they are
                pieces.append(Piece(token, unknown_score, NORMAL))
            else:
                pieces.append(Piece(FOREIGN + token, 0.0, UNUSED))
        return pieces


def read_dictionary(files: SourceFiles, name: str = VOCAB_JSON) -> dict[str, int]:
    """Return a vocabulary that has a file of its own, token -> id.

    Raises:
        SourceError: the file cannot be read.
        VerificationError: it is malformed, or an id has no token.
    """
    dictionary = files.json(name)
    path = files.path(name)
    check_ids(dictionary, path, len(files.bytes(name)))
    numbers = set(dictionary.values())
    for number in range(len(dictionary)):
        if number not in numbers:
            raise VerificationError(f"{path}: no token has the id {number}, and others are larger")
    return dictionary


def build_model(model: PieceModel, layout: VocabLayout, origin: str) -> "Tokenizer":
    """Build a tokenizer with the model, without normalizer and pre-tokenizer."""
    from tokenizers import Tokenizer, models

    pieces = layout.arrange(model)
    texts = [piece.text for piece in pieces]
    if len(set(texts)) < len(texts):
        duplicate = next(text for index, text in enumerate(texts) if text in texts[:index])
        raise VerificationError(f"{origin}: the piece {duplicate!r} has two ids")
    if layout.unknown not in texts:
        raise VerificationError(
            f"{origin} has no piece {layout.unknown}", "set unk_token in tokenizer_config.json"
        )
    byte_fallback = model.bytes_for_unknown
    with rust_parsing(origin, "a sentencepiece model"):
        if model.kind == BPE:
            ids = {text: number for number, text in enumerate(texts)}
            merges = list(_merges(pieces))
            options = {"unk_token": layout.unknown, "fuse_unk": True}
            return Tokenizer(models.BPE(ids, merges, byte_fallback=byte_fallback, **options))
        unknown = texts.index(layout.unknown)
        scores = list(zip(texts, _scores(pieces, layout), strict=True))
        return Tokenizer(models.Unigram(scores, unk_id=unknown, byte_fallback=byte_fallback))


def _scores(pieces: Sequence[Piece], layout: VocabLayout) -> Iterator[float]:
    """Yield the scores that sentencepiece uses.

    User-defined symbols have precedence. Control pieces never match.
    """
    lowest_score = min((piece.score for piece in pieces if piece.kind == NORMAL), default=0.0)
    for text, score, kind in pieces:
        if kind == USER_DEFINED:
            yield SYMBOL_SCORE
        elif kind != NORMAL:
            yield lowest_score - UNUSED_PENALTY
        elif layout.split_digit_comma and text[-1] == "," and text[-2:-1].isdigit():
            yield score - DIGIT_COMMA_PENALTY
        else:
            yield score


def _merges(pieces: Sequence[Piece]) -> Iterator[tuple[str, str]]:
    """Yield all pairs of pieces that merge to a piece, by descending score of the result."""
    usable_texts = {piece.text for piece in pieces if piece.kind in (NORMAL, USER_DEFINED, BYTE)}
    for piece in sorted(pieces, key=lambda piece: -piece.score):
        if piece.kind != NORMAL:
            continue
        for index in range(1, len(piece.text)):
            pair = (piece.text[:index], piece.text[index:])
            if usable_texts.issuperset(pair):
                yield pair
