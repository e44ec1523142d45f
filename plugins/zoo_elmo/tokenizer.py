"""Texts as words, and words as characters: there is no vocabulary and nothing to store."""

import re
from collections.abc import Sequence
from typing import Any

from zoo.checkpoint import TokenizerInfo
from zoo.errors import UsageError
from zoo.tokenization import Encoded, TextTokenizer
from zoo_elmo.characters import sentence_ids

BEGIN, END = "<S>", "</S>"  # how results show the boundaries of a sentence
WORD = re.compile(r"\S+")


class Sentence:
    """A sentence's words between its boundaries, in the form that ``Encoded`` takes.

    Args:
        text: the sentence.
        length: ids for each word.
    """

    def __init__(self, text: str, length: int) -> None:
        self._found = list(WORD.finditer(text))
        self._ids = sentence_ids([match.group() for match in self._found], length)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> list[list[int]]:
        """The characters of each word; like all that follows, a list of the caller's own."""
        return list(self._ids)

    @property
    def tokens(self) -> list[str]:
        """Each word as text."""
        return [BEGIN, *(match.group() for match in self._found), END]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Where each is in the text; (0, 0) for the boundaries."""
        return [(0, 0), *(match.span() for match in self._found), (0, 0)]

    @property
    def special_tokens_mask(self) -> list[int]:
        """1 for the boundaries."""
        return [1, *[0] * len(self._found), 1]

    @property
    def type_ids(self) -> list[int]:
        """0 for each."""
        return [0] * len(self)


class WordTokenizer(TextTokenizer):
    """Splits a text where there is white space: punctuation that stands by itself is a word.

    A text is one sentence, and every call begins afresh: nothing is carried from text to text.

    Args:
        max_characters: ids for each word.
    """

    def __init__(self, max_characters: int) -> None:
        self.info = TokenizerInfo(special={"bos": BEGIN, "eos": END})
        self.max_characters = max_characters

    def encode(
        self,
        texts: Sequence[str | tuple[str, str]],
        *,
        max_tokens: int | None,
        offsets: bool = True,
    ) -> list[Encoded]:
        """See ``TextTokenizer``; the ids of a word are a list.

        Raises:
            UsageError: ``max_tokens`` leaves no room for a word, a text is a pair, or is no text.
        """
        if max_tokens is not None and max_tokens < 3:
            raise UsageError(f"{max_tokens} tokens leave no room for a word between two boundaries")
        return [self._encode(number, text, max_tokens) for number, text in enumerate(texts, 1)]

    def _encode(self, number: int, text: Any, max_tokens: int | None) -> Encoded:
        if not isinstance(text, str):
            what = "is a pair" if isinstance(text, tuple) else f"is no text: {text!r}"
            raise UsageError(f"text {number} {what}", "the model reads one sentence at a time")
        try:
            sentence = Sentence(text, self.max_characters)
        except UnicodeEncodeError as error:
            raise UsageError(f"text {number} holds half of a surrogate pair") from error
        cuts = () if max_tokens is None else (slice(max_tokens - 1, len(sentence) - 1),)
        return Encoded(sentence, cuts)  # type: ignore[arg-type]

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Refuse: no model of this kind writes words.

        Raises:
            UsageError: always.
        """
        raise UsageError("characters are read here, and never written")

    def token_id(self, token: str) -> int | None:
        """Return ``None``: words have no numbers."""
        return None

    def token(self, number: int) -> str:
        """Refuse: words have no numbers.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"no word has the id {number}", "a word is its characters")
