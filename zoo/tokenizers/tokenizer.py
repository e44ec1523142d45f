"""A tokenizer at work: texts to ids, with truncation that is counted, and ids to text."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from zoo.errors import UsageError
from zoo.io.untrusted import rust_parsing
from zoo.tokenizers.info import TokenizerInfo

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

Text: TypeAlias = str | tuple[str, str]


class Encoded:
    """One text, or one pair of texts, as tokens. Lists are made when they are asked for.

    Args:
        encoding: all of the tokens.
        cuts: places of the tokens to cut.
        located: whether the encoding holds offsets.

    Attributes:
        ids: the token ids, special tokens included.
        truncated: how many tokens were cut.
    """

    def __init__(
        self, encoding: "Encoding", cuts: tuple[slice, ...], *, located: bool = True
    ) -> None:
        self._encoding, self._cuts, self._located = encoding, cuts, located
        self.ids: list[int] = _without(encoding.ids, cuts)
        self.truncated = len(encoding) - len(self.ids)

    @property
    def n(self) -> int:
        """Number of tokens."""
        return len(self.ids)

    @cached_property
    def tokens(self) -> list[str]:
        """The tokens as text."""
        return _without(self._encoding.tokens, self._cuts)

    @cached_property
    def type_ids(self) -> list[int]:
        """For each token, which text of a pair it belongs to, by the model's count."""
        return _without(self._encoding.type_ids, self._cuts)

    @cached_property
    def special(self) -> list[bool]:
        """For each token, whether it was put around the text rather than found in it."""
        return [bool(flag) for flag in _without(self._encoding.special_tokens_mask, self._cuts)]

    @cached_property
    def offsets(self) -> list[tuple[int, int]]:
        """For each token, where it is in its text: start and end in characters.

        Special tokens have (0, 0).
        """
        assert self._located, "encode(..., offsets=True) keeps offsets"
        return _without(self._encoding.offsets, self._cuts)


class TextTokenizer:
    """``tokenizer.json`` and what it does not say, ready for tasks.

    Args:
        tokenizer: without truncation or padding.
        info: special tokens and the longest input.
        name: where it is from, for messages.
    """

    def __init__(
        self, tokenizer: "Tokenizer", info: TokenizerInfo, name: str = "the tokenizer"
    ) -> None:
        self._tokenizer, self.info, self.name = tokenizer, info, name

    def encode(
        self, texts: Sequence[Text], *, max_tokens: int | None, offsets: bool = True
    ) -> list[Encoded]:
        """Tokenize texts or pairs of texts, with special tokens, on all cores.

        Args:
            texts: what to tokenize.
            max_tokens: the most tokens a text may have, special ones included; a longer text is
                cut at its end, of a pair the longer text first. ``None`` cuts nothing.
            offsets: keep where each token is in its text; without them it takes a quarter less
                time.

        Raises:
            UsageError: ``max_tokens`` leaves no room for text, or a text is no Unicode text.
        """
        with rust_parsing(self.name, "a tokenizer"):
            found = self._encode(list(texts), offsets)
        return [Encoded(each, _cuts(each, max_tokens), located=offsets) for each in found]

    def _encode(self, texts: list[Text], offsets: bool) -> "list[Encoding]":
        run = self._tokenizer.encode_batch if offsets else self._tokenizer.encode_batch_fast
        try:
            return run(texts)
        except TypeError as error:
            raise unreadable(texts) from error

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Return the text of token ids, as far as they tell it.

        Args:
            ids: the tokens.
            skip_special: leave special tokens out.
        """
        with rust_parsing(self.name, "a tokenizer"):
            text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)
        return text

    def token_id(self, token: str) -> int | None:
        """Return a token's id, or ``None`` if the vocabulary lacks it."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def token(self, number: int) -> str:
        """Return the token of an id.

        Raises:
            UsageError: no token has it; a model may have more rows than there are tokens.
        """
        found: str | None = self._tokenizer.id_to_token(number)
        if found is None:
            raise UsageError(f"no token has the id {number}")
        return found

    @property
    def pad_id(self) -> int:
        """The id to fill batches up with; 0 where no token is meant for it."""
        return self.role_id("pad") or 0

    @property
    def mask_id(self) -> int | None:
        """The id of the token that asks for a guess, or ``None``."""
        return self.role_id("mask")

    @property
    def mask_token(self) -> str | None:
        """The token that asks for a guess, or ``None``."""
        return self.info.special.get("mask")

    @property
    def max_tokens(self) -> int | None:
        """The longest input that the model was made for, or ``None``."""
        return self.info.max_tokens

    def role_id(self, role: str) -> int | None:
        """Return the id of the token that plays a role such as ``eos``, or ``None``."""
        token = self.info.special.get(role)
        return None if token is None else self.token_id(token)


def longest_first(first: int, second: int, max_tokens: int) -> tuple[int, int]:
    """Share out room between the texts of a pair, at the cost of the longer one.

    Args:
        first: tokens of the first text.
        second: tokens of the second text; 0 if there is none.
        max_tokens: how many tokens may remain in all.

    Returns:
        how many tokens of each remain. Where both are cut, the one that was longer keeps the
        odd one out, and the second if they were of one length.
    """
    if first + second <= max_tokens:
        return first, second
    short, long = sorted((first, second))
    if short > max_tokens // 2:
        short = max_tokens // 2
    long = max_tokens - short
    return (long, short) if first > second else (short, long)


def _cuts(encoding: "Encoding", max_tokens: int | None) -> tuple[slice, ...]:
    """Return the places of the tokens to cut: the end of a text, or of both of a pair."""
    if max_tokens is None or len(encoding) <= max_tokens:
        return ()
    texts = encoding.sequence_ids
    room = max_tokens - texts.count(None)
    if room < 1:
        raise UsageError(
            f"{max_tokens} tokens leave no room for text: {max_tokens - room} are special tokens"
        )
    counts = texts.count(0), texts.count(1)
    cuts = []
    for text, (count, keep) in enumerate(zip(counts, longest_first(*counts, room), strict=True)):
        if keep < count:
            start = texts.index(text)
            cuts.append(slice(start + keep, start + count))
    return tuple(cuts)


Item = TypeVar("Item")


def _without(found: list[Item], cuts: tuple[slice, ...]) -> list[Item]:
    """Remove what is cut from a list that nobody else holds."""
    for cut in reversed(cuts):
        del found[cut]
    return found


def unreadable(texts: Sequence[Text]) -> UsageError:
    """Say which of some texts, or pairs of texts, is none."""
    for number, text in enumerate(texts, 1):
        for part in text if isinstance(text, tuple) else (text,):
            if not isinstance(part, str):
                return UsageError(f"text {number} is no text: {part!r}")
            try:
                part.encode()
            except UnicodeEncodeError:
                return UsageError(f"text {number} holds half of a surrogate pair")
    return UsageError("texts must be strings or pairs of strings")
