"""Encoding of texts that a library split into parts, such as words."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer
    from tokenizers.models import Model

Text = str | tuple[str, str]
Span = tuple[int, int]


class Splitter(Protocol):
    """How texts are split before ``tokenizer.json`` reads the parts."""

    tool: ClassVar[str]  # what splits them, for messages

    @property
    def changes(self) -> tuple[str, ...]:
        """What it changes in texts, such as ``lower case``."""
        ...

    def split(self, text: str, model: "Model") -> "list[Word]":
        """Return the parts of a text, in order.

        Args:
            text: the text.
            model: the model that reads the parts; its vocabulary may decide how texts are split.

        Raises:
            UsageError: a library is not installed.
        """
        ...

    def hub_files(
        self, tokenizer: Mapping[str, Any], config: Mapping[str, Any]
    ) -> dict[str, bytes]:
        """Return the tokenizer files of the Hub's layout, name -> contents.

        Args:
            tokenizer: contents of ``tokenizer.json``, which cannot express how texts are split.
            config: contents of ``tokenizer_config.json``, for a class without options.
        """
        ...


@dataclass(frozen=True)
class Word:
    """A part of a text, and where its characters are in the text."""

    text: str
    # Start and end in the text of each character; what has no character of its own, such as a mark
    # of the end of a word, comes last.
    origins: Sequence[Span]

    def span(self, start: int, end: int) -> Span:
        """Return where a part of the word is in the text."""
        last = len(self.origins) - 1
        return self.origins[min(start, last)][0], self.origins[min(max(end - 1, start), last)][1]


class WordEncoding:
    """An encoding of words, with offsets in the text.

    Args:
        encoding: encoding of the words; its offsets are those in each word.
        words: the words of the text, or of both texts of a pair.
    """

    def __init__(self, encoding: "Encoding", words: Sequence[Sequence[Word]]) -> None:
        self._encoding = encoding
        self._words = words

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self._encoding)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the encoding, such as ``ids``."""
        return getattr(self._encoding, name)

    @property
    def offsets(self) -> list[Span]:
        """Start and end of each token in its text; (0, 0) for special tokens."""
        encoding = self._encoding
        spans = []
        places = zip(encoding.sequence_ids, encoding.word_ids, encoding.offsets, strict=True)
        for sequence, word, (start, end) in places:
            if sequence is None or word is None:
                spans.append((0, 0))
            else:
                spans.append(self._words[sequence][word].span(start, end))
        return spans


def encode_words(
    tokenizer: "Tokenizer",
    splitter: Splitter,
    texts: Sequence[Text],
    *,
    special_tokens: bool = True,
) -> list[WordEncoding]:
    """Tokenize the words of texts or pairs of texts.

    Special tokens in a text are words, unless the tokenizer splits them like other text.

    Args:
        tokenizer: tokenizer of words.
        splitter: how texts are split into words.
        texts: texts, or pairs of texts.
        special_tokens: add special tokens around the texts.

    Raises:
        TypeError: a text is not a string.
        UsageError: see ``Splitter.split``.
    """
    pattern = _special_tokens(tokenizer)
    model = tokenizer.model
    split_texts: list[tuple[list[Word], ...]] = []
    for text in texts:
        parts = text if isinstance(text, tuple) else (text,)
        words = []
        for part in parts:
            words.append(_split_around(splitter, part, pattern, model))
        split_texts.append(tuple(words))
    inputs: list[Any] = []
    for words_by_part in split_texts:
        contents = tuple([word.text for word in words] for words in words_by_part)
        inputs.append(contents if len(contents) > 1 else contents[0])
    encodings = tokenizer.encode_batch(
        inputs, is_pretokenized=True, add_special_tokens=special_tokens
    )
    return [
        WordEncoding(encoding, words)
        for encoding, words in zip(encodings, split_texts, strict=True)
    ]


def _special_tokens(tokenizer: "Tokenizer") -> re.Pattern[str] | None:
    """Return the pattern of added tokens; ``None`` if they are split like other text."""
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    if tokenizer.encode_special_tokens or not added:
        return None
    longest_first = sorted(added, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)))


def _split_around(
    splitter: Splitter, text: str, special_tokens: re.Pattern[str] | None, model: "Model"
) -> list[Word]:
    """Return the words of a text, of which special tokens are some."""
    if not isinstance(text, str):
        raise TypeError("a text is not a string")
    text.encode()  # Libraries may stop at a lone surrogate.
    words: list[Word] = []
    for start, end, is_special in _sections(text, special_tokens):
        section = text[start:end]
        if is_special:
            words.append(Word(section, [(index, index + 1) for index in range(start, end)]))
            continue
        for word in splitter.split(section, model):
            moved = [(first + start, last + start) for first, last in word.origins]
            words.append(Word(word.text, moved))
    return words


def _sections(text: str, pattern: re.Pattern[str] | None) -> Iterator[tuple[int, int, bool]]:
    """Yield start and end of the sections of a text, and whether one is a special token."""
    end = 0
    for match in pattern.finditer(text) if pattern is not None else ():
        if match.start() > end:
            yield end, match.start(), False
        yield match.start(), match.end(), True
        end = match.end()
    if end < len(text):
        yield end, len(text), False
