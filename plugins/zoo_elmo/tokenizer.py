"""The tokenizer: texts split into words, and words into characters, without a vocabulary."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from zoo.errors import UsageError
from zoo.overrides import override
from zoo.tokenizers import Encoded, TextTokenizer
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.tokenizer import Truncation, unreadable
from zoo_elmo.characters import sentence_ids

# how results show the boundaries of a sentence
BEGIN = "<S>"
END = "</S>"
WORD = re.compile(r"\S+")


class Sentence(Encoded):
    """An encoded sentence, with boundaries; the ids of a word are a list."""

    def __init__(self, text: Any, length: int, max_words: int | None) -> None:
        matches = list(WORD.finditer(text))
        read = matches[:max_words]
        words = [match.group() for match in read]
        self.ids = sentence_ids(words, length)  # type: ignore[assignment]
        self.truncated = len(matches) - len(read)
        self.tokens = [BEGIN, *words, END]
        self.offsets = [(0, 0), *(match.span() for match in read), (0, 0)]
        self.special = [True, *[False] * len(read), True]
        self.type_ids = [0] * len(self.ids)


class WordTokenizer(TextTokenizer):
    """Splits a text at white space. A text is one sentence."""

    def __init__(self, max_characters: int, *, lowercase: bool = False) -> None:
        self.info = TokenizerInfo(special={"bos": BEGIN, "eos": END})
        self.max_characters = max_characters
        self.lowercase = lowercase

    @cached_property
    @override
    def lowercased(self) -> "WordTokenizer":
        return WordTokenizer(self.max_characters, lowercase=True)

    @override
    def encode(
        self,
        texts: Sequence[str | tuple[str, str]],
        *,
        max_tokens: int | None,
        offsets: bool = True,
        truncation: Truncation = "longest_first",
    ) -> list[Encoded]:
        if max_tokens is not None and max_tokens < 3:
            raise UsageError(f"{max_tokens} tokens leave no room for a word between two boundaries")
        for number, text in enumerate(texts, 1):
            if isinstance(text, tuple):
                raise UsageError(f"text {number} is a pair", "the model reads one text at a time")
        max_words = None if max_tokens is None else max_tokens - 2  # boundaries are tokens
        if self.lowercase:
            texts = [text.lower() if isinstance(text, str) else text for text in texts]
        try:
            return [Sentence(text, self.max_characters, max_words) for text in texts]
        except (TypeError, UnicodeEncodeError) as error:
            raise unreadable(texts) from error

    @override
    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        raise UsageError("characters are read here, and never written")

    @override
    def token_id(self, token: str) -> int | None:
        return None

    @override
    def token(self, number: int) -> str:
        raise UsageError(f"no word has the id {number}", "a word is its characters")
