"""Texts as words, and words as characters: there is no vocabulary and nothing to store."""

import re
from collections.abc import Sequence
from typing import Any

from zoo.errors import UsageError
from zoo.tokenizers import Encoded, TextTokenizer
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.tokenizer import unreadable
from zoo_elmo.characters import sentence_ids

BEGIN, END = "<S>", "</S>"  # how results show the boundaries of a sentence
WORD = re.compile(r"\S+")


class Sentence(Encoded):
    """A sentence's words between its boundaries; the ids of a word are a list.

    Args:
        text: the sentence.
        length: ids for each word.
        most: words that it may have; those that follow are cut. ``None`` for any number.
    """

    def __init__(self, text: Any, length: int, most: int | None) -> None:
        every = list(WORD.finditer(text))
        found = every[:most]
        words = [match.group() for match in found]
        self.ids = sentence_ids(words, length)  # type: ignore[assignment]
        self.truncated = len(every) - len(found)
        self.tokens = [BEGIN, *words, END]
        self.offsets = [(0, 0), *(match.span() for match in found), (0, 0)]
        self.special = [True, *[False] * len(found), True]
        self.type_ids = [0] * len(self.ids)


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
        """See ``TextTokenizer``.

        Raises:
            UsageError: ``max_tokens`` leaves no room for a word, a text is a pair, or is no text.
        """
        if max_tokens is not None and max_tokens < 3:
            raise UsageError(f"{max_tokens} tokens leave no room for a word between two boundaries")
        for number, text in enumerate(texts, 1):
            if isinstance(text, tuple):
                raise UsageError(f"text {number} is a pair", "the model reads one text at a time")
        most = None if max_tokens is None else max_tokens - 2  # the boundaries count
        try:
            return [Sentence(text, self.max_characters, most) for text in texts]
        except (TypeError, UnicodeEncodeError) as error:
            raise unreadable(texts) from error

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
