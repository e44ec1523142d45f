"""Encoding of texts to token ids, with truncation, and decoding."""

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from msgspec.structs import replace

from zoo.errors import UsageError
from zoo.io.page_text import html_text
from zoo.io.untrusted import rust_parsing
from zoo.tokenizers.info import Side, TokenizerInfo
from zoo.tokenizers.languages import TemplateLanguage, in_language, language_of, languages_of
from zoo.tokenizers.targets import read_target_tokenizer
from zoo.tokenizers.tokenizer_json import definition_of
from zoo.tokenizers.words import WordEncoding, encode_words

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

Text: TypeAlias = str | tuple[str, str]
Truncation: TypeAlias = Literal["longest_first", "only_first"]  # of pairs, as in transformers


class Encoded:
    """Encoding of a text or a pair of texts. Lists are built on access.

    Args:
        encoding: encoding without truncation.
        cuts: ranges of the tokens to remove.
        located: the encoding has offsets.
        ending: number of tokens at the end that are also left out.
        typed: the texts of a pair have the token types of the template; otherwise all are 0.

    Attributes:
        ids: token ids, special tokens included.
        truncated: number of tokens that were removed, ``ending`` excluded.
    """

    def __init__(
        self,
        encoding: "Encoding | WordEncoding",
        cuts: tuple[slice, ...],
        *,
        located: bool = True,
        ending: int = 0,
        typed: bool = True,
    ) -> None:
        length = len(encoding)
        self._encoding = encoding
        self._located = located
        self._typed = typed
        self._cuts = (*cuts, slice(length - ending, length))
        self.ids: list[int] = _without(encoding.ids, self._cuts)
        self.truncated = length - ending - len(self.ids)

    def __repr__(self) -> str:
        """Return the tokens."""
        return f"<{self.n:,} tokens: {' '.join(self.tokens)}>"

    def _repr_html_(self) -> str:
        """Return a table of tokens, ids and offsets, for notebooks."""
        rows = []
        for position, (token, number) in enumerate(zip(self.tokens, self.ids, strict=True)):
            cells = [token, str(number)]
            if self._located:
                start, end = self.offsets[position]
                cells.append(f"{start} to {end}")
            rows.append("".join(f"<td>{html_text(cell)}</td>" for cell in cells))
        title = f"{self.n:,} tokens"
        if self.truncated:
            title += f", {self.truncated:,} more cut"
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><caption>{title}</caption><tbody>{body}</tbody></table>"

    @property
    def n(self) -> int:
        """Number of tokens."""
        return len(self.ids)

    @cached_property
    def tokens(self) -> list[str]:
        """Tokens as strings."""
        return _without(self._encoding.tokens, self._cuts)

    @cached_property
    def type_ids(self) -> list[int]:
        """Token type id of each token."""
        if not self._typed:
            return [0] * len(self.ids)
        return _without(self._encoding.type_ids, self._cuts)

    @cached_property
    def special(self) -> list[bool]:
        """``True`` for each special token that the template added."""
        return [bool(flag) for flag in _without(self._encoding.special_tokens_mask, self._cuts)]

    @cached_property
    def sequence_ids(self) -> list[int | None]:
        """0 and 1 for tokens of the first and second text, ``None`` for special tokens."""
        return _without(self._encoding.sequence_ids, self._cuts)

    @cached_property
    def word_ids(self) -> list[int | None]:
        """Index of each token's word in its text, ``None`` for special tokens."""
        return _without(self._encoding.word_ids, self._cuts)

    @cached_property
    def offsets(self) -> list[tuple[int, int]]:
        """Start and end of each token in its text, in characters.

        Special tokens have (0, 0).
        """
        assert self._located, "encode(..., offsets=True) keeps offsets"
        return _without(self._encoding.offsets, self._cuts)


class TextTokenizer:
    """Tokenizer of tasks: ``tokenizer.json`` with the properties that it lacks.

    Args:
        tokenizer: tokenizer without truncation or padding.
        info: special tokens, maximum length, and further properties.
        name: file of the tokenizer, for messages.
    """

    def __init__(
        self, tokenizer: "Tokenizer", info: TokenizerInfo, name: str = "the tokenizer"
    ) -> None:
        self._tokenizer = tokenizer
        self.info = info
        self.name = name
        tokenizer.encode_special_tokens = info.split_special_tokens

    def __repr__(self) -> str:
        """Return the algorithm, the size of the vocabulary and the longest text."""
        limit = "texts of any length"
        if self.max_tokens is not None:
            limit = f"texts of up to {self.max_tokens:,} tokens"
        algorithm = type(self._tokenizer.model).__name__
        return f"<{algorithm} tokenizer of {self._tokenizer.get_vocab_size():,} tokens, {limit}>"

    def encode(
        self,
        texts: Sequence[Text],
        *,
        max_tokens: int | None,
        offsets: bool = True,
        truncation: Truncation = "longest_first",
    ) -> list[Encoded]:
        """Tokenize texts or pairs of texts, with special tokens, on all cores.

        Args:
            texts: texts, or pairs of texts.
            max_tokens: maximum number of tokens, special ones included; a longer text is truncated
                on the side that the tokenizer's files name, by default at its end, of a pair the
                longer text first. ``None`` for no truncation.
            offsets: compute offsets; without them, encoding takes a quarter less time.
            truncation: ``only_first`` truncates the first text of a pair only.

        Raises:
            UsageError: ``max_tokens`` leaves no room for text, or a text is not valid Unicode.
        """
        with rust_parsing(self.name, "a tokenizer"):
            encodings = self._encode(list(texts), offsets)
        typed = self.info.token_types
        return [
            Encoded(
                e,
                self._cuts(e, max_tokens, truncation=truncation),
                located=offsets,
                typed=typed,
            )
            for e in encodings
        ]

    def encode_prompts(self, texts: Sequence[Text], *, max_tokens: int | None) -> list[Encoded]:
        """Tokenize prompts, without the closing special tokens.

        Args:
            texts: the beginnings of texts.
            max_tokens: see ``encode``.

        Raises:
            UsageError: see ``encode``.
        """
        with rust_parsing(self.name, "a tokenizer"):
            encodings = self._encode(list(texts), True)
        prompts = []
        for encoding in encodings:
            ending = len([*itertools.takewhile(bool, reversed(encoding.special_tokens_mask))])
            cuts = self._cuts(encoding, max_tokens, ending)
            typed = self.info.token_types
            prompts.append(Encoded(encoding, cuts, ending=ending, typed=typed))
        return prompts

    def _cuts(
        self,
        encoding: "Encoding | WordEncoding",
        max_tokens: int | None,
        ending: int = 0,
        truncation: Truncation = "longest_first",
    ) -> tuple[slice, ...]:
        left = self.info.truncation_side == "left"
        return _cuts(encoding, max_tokens, ending, left=left, truncation=truncation)

    def _encode(self, texts: list[Text], offsets: bool) -> "list[Encoding] | list[WordEncoding]":
        run = self._tokenizer.encode_batch if offsets else self._tokenizer.encode_batch_fast
        try:
            if self.info.splitter is not None:
                return encode_words(self._tokenizer, self.info.splitter, texts)
            encodings: list[Encoding] = run(texts)
        except (TypeError, UnicodeEncodeError) as error:
            raise unreadable(texts) from error
        return encodings

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Decode token ids.

        Args:
            ids: token ids.
            skip_special: omit special tokens.
        """
        with rust_parsing(self.name, "a tokenizer"):
            text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)
        return text

    def token_id(self, token: str) -> int | None:
        """Return a token's id, or ``None`` if the vocabulary lacks it."""
        token_id: int | None = self._tokenizer.token_to_id(token)
        return token_id

    def vocabulary(self) -> dict[str, int]:
        """Return token -> id, added tokens included."""
        tokens: dict[str, int] = self._tokenizer.get_vocab()
        return tokens

    def makes_same_ids(self, other: "TextTokenizer") -> bool:
        """Return whether another tokenizer has the same definition, so that ids are equal."""
        if type(self) is not type(other):
            return False
        if self.info.splitter != other.info.splitter:
            return False
        return bool(self._tokenizer.to_str() == other._tokenizer.to_str())

    @cached_property
    def language(self) -> TemplateLanguage | None:
        """Language of the texts, which their template states; ``None`` without languages."""
        return language_of(self._tokenizer, self.info)

    @cached_property
    def languages(self) -> list[str]:
        """Tokens of all languages, such as ``de_DE``; empty without languages."""
        return languages_of(self._tokenizer, self.info)

    def in_language(self, token: str) -> "TextTokenizer":
        """Return the tokenizer of texts in another language.

        Args:
            token: token of the language, such as ``de_DE``.

        Raises:
            UsageError: the tokenizer has no languages, or not this one.
        """
        return TextTokenizer(*in_language(self._tokenizer, self.info, token), self.name)

    def with_truncation_side(self, side: Side) -> "TextTokenizer":
        """Return the tokenizer that cuts texts on a side."""
        return TextTokenizer(self._tokenizer, replace(self.info, truncation_side=side), self.name)

    def token(self, number: int) -> str:
        """Return the token of an id.

        Raises:
            UsageError: no token has that id; embeddings may have more rows than tokens.
        """
        token: str | None = self._tokenizer.id_to_token(number)
        if token is None:
            raise UsageError(f"no token has the id {number}")
        return token

    @cached_property
    def splits_at_spaces(self) -> bool:
        """Whether the tokens of a word depend on no other word, and those at the end are cut."""
        steps = self._tokenizer.pre_tokenizer
        parts = [] if steps is None else steps.pre_tokenize_str("a b")
        return len(parts) > 1 and self.info.truncation_side != "left"

    @cached_property
    def targets(self) -> "TextTokenizer":
        """Tokenizer of targets; itself unless the model splits them by other pieces."""
        packed = self.info.targets
        if packed is None:
            return self
        tokenizer = read_target_tokenizer(packed, self.name)
        return TextTokenizer(tokenizer, replace(self.info, targets=None), self.name)

    @cached_property
    def pad_id(self) -> int:
        """Id of the padding token; 0 without one."""
        return self.role_id("pad") or 0

    @property
    def mask_id(self) -> int | None:
        """Id of the mask token, or ``None``."""
        return self.role_id("mask")

    @property
    def mask_token(self) -> str | None:
        """Mask token, or ``None``."""
        return self.info.special.get("mask")

    @property
    def subword_prefix(self) -> str:
        """Prefix of tokens that continue a word, such as ``##``; empty for none."""
        return getattr(self._tokenizer.model, "continuing_subword_prefix", None) or ""

    @cached_property
    def lowercased(self) -> "TextTokenizer":
        """Tokenizer of texts that are lower-cased first, except for their added tokens."""
        # As in sentence-transformers, a step of the tokenizer. ``str.lower`` depends on the letters
        # around one (a sigma at the end of a word), and would change special tokens in a prompt.
        from tokenizers import Tokenizer, normalizers

        definition = definition_of(self._tokenizer.normalizer)
        steps = [] if definition is None else definition.get("normalizers", [definition])
        if any(step["type"] == "Lowercase" for step in steps):
            return self
        tokenizer = Tokenizer.from_str(self._tokenizer.to_str())
        following = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *following])
        return TextTokenizer(tokenizer, self.info, self.name)

    @property
    def max_tokens(self) -> int | None:
        """Maximum input length of the model in tokens, or ``None``."""
        return self.info.max_tokens

    def role_id(self, role: str) -> int | None:
        """Return the id of the special token with a role such as ``eos``, or ``None``."""
        token = self.info.special.get(role)
        return None if token is None else self.token_id(token)


def longest_first(first: int, second: int, max_tokens: int) -> tuple[int, int]:
    """Truncate the lengths of a pair, the longer text first."""
    # If both are truncated and ``max_tokens`` is odd, the longer text keeps one token more; of
    # equally long texts, the second
    if first + second <= max_tokens:
        return first, second
    short, long = sorted((first, second))
    if short > max_tokens // 2:
        short = max_tokens // 2
    long = max_tokens - short
    return (long, short) if first > second else (short, long)


def _cuts(
    encoding: "Encoding | WordEncoding",
    max_tokens: int | None,
    ending: int,
    *,
    left: bool,
    truncation: Truncation,
) -> tuple[slice, ...]:
    """Return the ranges of the tokens to remove, in one text or in both."""
    # The ``ending`` special tokens at the end do not count. ``left`` removes the beginnings of
    # texts
    if max_tokens is None or len(encoding) - ending <= max_tokens:
        return ()
    texts = encoding.sequence_ids
    room = max_tokens - (texts.count(None) - ending)
    if room < 1:
        raise UsageError(
            f"{max_tokens} tokens leave no room for text: {max_tokens - room} are special tokens"
        )
    counts = texts.count(0), texts.count(1)
    kept = longest_first(*counts, room)
    if truncation == "only_first":
        kept = room - counts[1], counts[1]
        if kept[0] < 1:
            raise UsageError(
                f"{max_tokens} tokens leave no room for a text: {max_tokens - kept[0]} are the "
                "second text and special tokens"
            )
    cuts = []
    for text, (count, keep) in enumerate(zip(counts, kept, strict=True)):
        if keep < count:
            start = texts.index(text) + (0 if left else keep)
            cuts.append(slice(start, start + count - keep))
    return tuple(cuts)


Item = TypeVar("Item")


def _without(items: list[Item], cuts: tuple[slice, ...]) -> list[Item]:
    """Remove ranges from a list in place."""
    for cut in reversed(cuts):
        del items[cut]
    return items


def unreadable(texts: Sequence[Text]) -> UsageError:
    """Return the error that names the first invalid text."""
    for number, text in enumerate(texts, 1):
        for part in text if isinstance(text, tuple) else (text,):
            if not isinstance(part, str):
                return UsageError(f"text {number} is not a string: {part!r}")
            try:
                part.encode()
            except UnicodeEncodeError:
                return UsageError(f"text {number} holds a lone surrogate")
    return UsageError("texts must be strings or pairs of strings")
