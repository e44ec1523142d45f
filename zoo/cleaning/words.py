"""The tokenizer of words and sentences, which keeps what it knows of words."""

from typing import Any

from datatrove.utils.word_tokenizers import SpaCyTokenizer, WordTokenizer, load_word_tokenizer

from zoo.overrides import override

# Characters of the first texts of a task whose words are kept.
KEPT_CHARACTERS = 2_000_000
# A word whose number in spaCy is 1, which its tables take for "deleted": after a memory zone they
# return the freed entry of this word. An entry from outside of any zone is never freed.
UNFORGOTTEN_WORD = "IS_ALPHA"


class KeepingTokenizer(WordTokenizer):  # type: ignore[misc]  # datatrove has no types
    """datatrove's tokenizer of a language, faster where it is spaCy's.

    datatrove lets spaCy forget all words after each text, so that memory stays flat, and most of
    the time is spent on words that were known before. The words of the first texts of a task are
    kept here; the results are the same.

    Args:
        language: code of the language.
    """

    def __init__(self, language: str) -> None:
        super().__init__(language)
        self._characters = 0

    def _tokenizer(self, text: str) -> Any:
        """Return datatrove's tokenizer; it keeps the words of a text if it has few yet."""
        tokenizer = load_word_tokenizer(self.language)
        if not isinstance(tokenizer, SpaCyTokenizer):
            return tokenizer
        pipeline = tokenizer.tokenizer
        if UNFORGOTTEN_WORD in text:
            pipeline.vocab[UNFORGOTTEN_WORD]
        if tokenizer.config is None and self._characters < KEPT_CHARACTERS:
            self._characters += len(text)
            # Outside of a memory zone, which datatrove opens for each text.
            pipeline.tokenizer(text)
        return tokenizer

    @override
    def word_tokenize(self, text: str) -> list[str]:
        words: list[str] = self._tokenizer(text).word_tokenize(text)
        return words

    @override
    def sent_tokenize(self, text: str) -> list[str]:
        sentences: list[str] = self._tokenizer(text).sent_tokenize(text)
        return sentences

    @override
    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = self._tokenizer(text).span_tokenize(text)
        return spans
