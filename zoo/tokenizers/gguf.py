"""Tokenizers as the headers of GGUF files describe them to llama.cpp, in the Hub's files."""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from zoo.errors import VerificationError
from zoo.io.json import dump_json
from zoo.io.limits import MAX_PIECE_LENGTH, MAX_TOKEN_ID
from zoo.io.sizes import check_size
from zoo.tokenizers.config_files import DECODER_KEY, FLAGS
from zoo.tokenizers.sentencepiece import proto
from zoo.tokenizers.sentencepiece.model import VocabLayout, build_model
from zoo.tokenizers.sentencepiece.normalization import NormalizationOptions, set_pipeline
from zoo.tokenizers.sentencepiece.proto import Piece, PieceModel
from zoo.tokenizers.source_files import (
    MERGES,
    TOKENIZER_CONFIG,
    TOKENIZER_JSON,
    VOCAB_JSON,
    VOCABULARY,
)

LOG = logging.getLogger("zoo")
ARCHITECTURE = "general.architecture"
PREFIX = "tokenizer.ggml."
MODEL = f"{PREFIX}model"
HUGGING_FACE = "tokenizer.huggingface.json"  # a whole tokenizer.json, which llama.cpp ignores
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # in front of a word
# role of a special token -> its key
ROLE_KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",  # as the format spells it
    "pad": "padding_token_id",
    "cls": "cls_token_id",
    "mask": "mask_token_id",
}
# kinds of tokenizers
WORDPIECE = "bert"
BYTE_LEVEL = "gpt2"
UNIGRAM = "t5"
# splits of texts into words that llama.cpp has under several names, all the same one
SPLITS = frozenset(("gpt-2", "roberta-bpe", "modern-bert", "phi-2", "jina-es", "jina-de"))
POOLINGS = {"mean": 1, "cls": 2, "lasttoken": 3}  # by their numbers
RANK = 4  # the scores of a classifier


class TokenKind(IntEnum):
    """TokenKind of a token."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def tokenizer_files(metadata: Mapping[str, Any], location: str) -> dict[str, bytes]:
    """Return the Hub's files of the tokenizer of a header; none if it is of an unknown kind.

    Raises:
        VerificationError: the header contradicts itself.
    """
    whole = metadata.get(HUGGING_FACE)
    kind = metadata.get(MODEL, "")
    split = metadata.get(f"{PREFIX}pre", "default")
    readers = {WORDPIECE: _wordpiece, BYTE_LEVEL: _byte_level, UNIGRAM: _unigram}
    known = kind in readers and (kind != BYTE_LEVEL or split in SPLITS)
    if not known and not isinstance(whole, str):
        if kind:
            LOG.warning(
                "%s has a tokenizer of the kind %s (%s), which zoo does not read: "
                "`zoo convert --tokenizer REF` adds one",
                location,
                kind,
                split,
            )
        return {}
    header = _Vocabulary.read(metadata, location)
    config = header.config(("unk", "sep", "pad", "cls", "mask") if kind == WORDPIECE else ROLE_KEYS)
    if isinstance(whole, str):
        files = {TOKENIZER_JSON: whole.encode()}
    else:
        files = readers[kind](header, config)
    return {**files, TOKENIZER_CONFIG: dump_json(config).encode()}


def pooling_mode(metadata: Mapping[str, Any]) -> str | None:
    """Return the pooling of the embeddings of a header; ``None`` if it has none."""
    number = metadata.get(f"{metadata.get(ARCHITECTURE)}.pooling_type")
    return next((mode for mode, known in POOLINGS.items() if known == number), None)


def list_of(value: Any, kinds: tuple[type, ...], location: str) -> list[Any] | None:
    """Return the items of an array of a header if all are of some types, or ``None``."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return None
    check_size(location, "length of an array of its tokenizer", len(value), MAX_TOKEN_ID + 1)
    items = list(value)
    return items if all(type(item) in kinds for item in items) else None


@dataclass(frozen=True)
class _Vocabulary:
    """The tokens of a header, with their kinds."""

    metadata: Mapping[str, Any]
    location: str
    tokens: Sequence[str]
    kinds: Sequence[int]

    @classmethod
    def read(cls, metadata: Mapping[str, Any], location: str) -> "_Vocabulary":
        tokens = list_of(metadata.get(f"{PREFIX}tokens"), (str,), location)
        if tokens is None:
            raise VerificationError(f"{location}: {PREFIX}tokens is not a list of tokens")
        usual = [int(TokenKind.NORMAL)] * len(tokens)
        kinds = list_of(metadata.get(f"{PREFIX}token_type", usual), (int,), location)
        if kinds is None or len(kinds) != len(tokens):
            raise VerificationError(
                f"{location}: {PREFIX}token_type is not a list of {len(tokens)} kinds of tokens"
            )
        return cls(metadata, location, tokens, kinds)

    def role(self, name: str) -> int | None:
        """Return the id of a special token."""
        key = PREFIX + ROLE_KEYS[name]
        number = self.metadata.get(key)
        if number is None:
            return None
        if type(number) is not int or not 0 <= number < len(self.tokens):
            raise VerificationError(
                f"{self.location}: {key} is {number!r:.100}, and there are {len(self.tokens)} "
                "tokens"
            )
        return number

    def flag(self, name: str, default: bool) -> bool:
        value = self.metadata.get(PREFIX + name, default)
        if not isinstance(value, bool):
            raise VerificationError(
                f"{self.location}: {PREFIX}{name} = {value!r:.100} is neither true nor false"
            )
        return value

    def config(self, roles: Sequence[str] | Mapping[str, str]) -> dict[str, Any]:
        """Return the contents of ``tokenizer_config.json``: special and added tokens."""
        # a WordPiece vocabulary may only name what llama.cpp puts around texts
        others = {"cls": "bos", "sep": "eos"}
        ids: dict[str, int] = {}
        for role in roles:
            number = self.role(role)
            if number is None and "bos" not in roles and role in others:
                number = self.role(others[role])
            if number is not None:
                ids[role] = number
        added = {
            str(number): {
                "content": self.tokens[number],
                **dict.fromkeys(FLAGS, False),
                "special": kind == TokenKind.CONTROL,
            }
            for number, kind in enumerate(self.kinds)
            if kind in (TokenKind.CONTROL, TokenKind.USER_DEFINED) and number not in ids.values()
        }
        return {
            **{f"{role}_token": self.tokens[number] for role, number in ids.items()},
            **({DECODER_KEY: added} if added else {}),
        }


def _wordpiece(header: _Vocabulary, config: dict[str, Any]) -> dict[str, bytes]:
    """Return the vocabulary of a WordPiece model, whose words are marked in place of their rest."""
    special = {text for key, text in config.items() if key.endswith("_token")}
    lines = []
    cased = False
    for text, kind in zip(header.tokens, header.kinds, strict=True):
        is_special = kind not in (TokenKind.NORMAL, TokenKind.UNUSED) or text in special
        if is_special or (text.startswith("[") and text.endswith("]")):
            lines.append(text)
            continue
        word = text.removeprefix(SPACE)
        lines.append(word if word != text else f"##{word}")
        cased = cased or (kind == TokenKind.NORMAL and re.search("[A-Z]", word) is not None)
    for number, text in enumerate(lines):
        if not text or text.split() != [text]:
            raise VerificationError(
                f"{header.location}: its token {number}, {text!r:.100}, is not a word or a part "
                "of one"
            )
    # llama.cpp lower-cases all texts: a vocabulary with capitals was trained without that
    config["do_lower_case"] = not cased
    return {VOCABULARY: "\n".join(lines).encode()}


def _byte_level(header: _Vocabulary, config: dict[str, Any]) -> dict[str, bytes]:
    """Return vocabulary and merges of a byte-level BPE model."""
    merges = list_of(header.metadata.get(f"{PREFIX}merges"), (str,), header.location)
    if merges is None or not all(
        len(pair.split(" ")) == 2 and pair.split() == pair.split(" ") for pair in merges
    ):
        raise VerificationError(f"{header.location}: {PREFIX}merges is not a list of pairs")
    vocabulary = {
        text: number
        for number, (text, kind) in enumerate(zip(header.tokens, header.kinds, strict=True))
        if kind != TokenKind.UNUSED
    }
    if len(vocabulary) < len(header.tokens) - header.kinds.count(TokenKind.UNUSED):
        raise VerificationError(f"{header.location}: two of its tokens are the same text")
    config["add_prefix_space"] = header.flag("add_space_prefix", False)
    config["add_bos_token"] = header.flag("add_bos_token", False)
    config["add_eos_token"] = header.flag("add_eos_token", False)
    lines = "\n".join(["#version: 0.2", *merges])
    return {
        VOCAB_JSON: dump_json(vocabulary, ensure_ascii=False).encode(),
        MERGES: lines.encode(),
    }


def _unigram(header: _Vocabulary, config: dict[str, Any]) -> dict[str, bytes]:
    """Return the definition of a unigram model of SentencePiece."""
    origin = header.location
    count = len(header.tokens)
    scores = list_of(header.metadata.get(f"{PREFIX}scores"), (int, float), origin)
    if scores is None or len(scores) != count or not all(map(math.isfinite, scores)):
        raise VerificationError(f"{origin}: {PREFIX}scores is not a list of {count} numbers")
    unknown = header.role("unk")
    if unknown is None and TokenKind.UNKNOWN in header.kinds:
        unknown = header.kinds.index(TokenKind.UNKNOWN)
    if unknown is None:
        raise VerificationError(f"{origin} names no unknown token, which its tokenizer needs")
    pieces = [
        Piece(text, float(score), kind)
        for text, score, kind in zip(header.tokens, scores, header.kinds, strict=True)
    ]
    while pieces and pieces[-1].kind == TokenKind.UNUSED:
        pieces.pop()
    for number, piece in enumerate(pieces):
        length = len(piece.text.encode())
        check_size(origin, f"length of its token {number}", length, MAX_PIECE_LENGTH, least=1)
        if "\0" in piece.text:
            raise VerificationError(f"{origin}: its token {number} is {piece.text!r:.100}")
    charsmap = list_of(header.metadata.get(f"{PREFIX}precompiled_charsmap", []), (int,), origin)
    if charsmap is None or not all(-128 <= value < 256 for value in charsmap):
        raise VerificationError(f"{origin}: {PREFIX}precompiled_charsmap is not a list of bytes")
    model = PieceModel(
        tuple(pieces),
        kind=proto.UNIGRAM,
        unknown=unknown,
        charsmap=bytes(value & 0xFF for value in charsmap),
        leading_space=header.flag("add_space_prefix", True),
        single_spaces=header.flag("remove_extra_whitespaces", True),
        bytes_for_unknown=False,
    )
    layout = VocabLayout((), 0, (), 0, header.tokens[unknown], split_digit_comma=False)
    tokenizer = build_model(model, layout, origin)
    spelling = NormalizationOptions(lowercase=False, strip_accents=False, plain_quotes=False)
    set_pipeline(tokenizer, model, spelling, origin)
    config["unk_token"] = header.tokens[unknown]
    return {TOKENIZER_JSON: tokenizer.to_str().encode()}
