"""Splitting of texts into words by a library, before ``tokenizer.json`` splits the words.

MeCab (Kudo et al. 2004, "Applying Conditional Random Fields to Japanese Morphological Analysis")
finds the words of Japanese texts, which have no spaces. It is run by fugashi, with a dictionary
that is a package, as in transformers.
"""

import importlib
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args

from zoo.errors import UsageError, VerificationError
from zoo.io.json import JsonStruct

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from zoo.tokenizers.config_files import TokenizerFilesConfig

Dictionary = Literal["unidic_lite", "unidic", "ipadic"]
Text = str | tuple[str, str]
Span = tuple[int, int]
# Keys of ``tokenizer_config.json`` -> the values with which words are split.
REQUIRED: Mapping[str, tuple[Any, ...]] = {
    "word_tokenizer_type": ("mecab",),
    "subword_tokenizer_type": ("wordpiece", "character"),
    "do_word_tokenize": (True,),
    "do_subword_tokenize": (True,),
}
DEFAULTS = {"subword_tokenizer_type": "wordpiece"}


class Splitter(Protocol):
    """How texts are split before ``tokenizer.json`` reads the parts."""

    tool: ClassVar[str]  # what splits them, for messages

    def split(self, text: str) -> "list[Word]":
        """Return the parts of a text, in order."""
        ...


class WordSplitter(JsonStruct):
    """How MeCab splits texts into words."""

    tool: ClassVar[str] = "MeCab"

    dictionary: Dictionary = "unidic_lite"  # package with MeCab's dictionary
    normalize: bool = True  # normalize texts by NFKC first
    lowercase: bool = False  # lower-case words
    characters: bool = False  # each character of a word is a token

    def split(self, text: str) -> "list[Word]":
        """Return the words of a text, in order.

        Raises:
            UsageError: MeCab or the dictionary is not installed.
        """
        tagger = _tagger(self.dictionary)
        normalized, origins = _normalize(text) if self.normalize else _unchanged(text)
        words = []
        start = 0
        for surface in tagger(normalized):
            start = normalized.index(surface, start)
            for first, last in self._parts(surface):
                content = surface[first:last]
                places = origins[start + first : start + last]
                words.append(Word(content.lower() if self.lowercase else content, places))
            start += len(surface)
        return words

    def _parts(self, surface: str) -> list[Span]:
        """Return start and end of the parts of MeCab's word, which may hold white space."""
        if self.characters:
            return [(0, len(surface))]
        return [match.span() for match in re.finditer(r"\S+", surface)]


@dataclass(frozen=True)
class Word:
    """A word, and where its characters are in the text."""

    text: str
    origins: Sequence[Span]  # start and end in the text, for each character before lower-casing

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


def read_word_splitter(settings: "TokenizerFilesConfig") -> WordSplitter | None:
    """Return how ``tokenizer_config.json`` splits texts into words; ``None`` without a library.

    Raises:
        VerificationError: a key has a value that is not implemented.
    """
    config = settings.config
    if config.get("word_tokenizer_type") in (None, "basic"):
        return None
    for key, values in REQUIRED.items():
        value = config.get(key, DEFAULTS.get(key, values[0]))
        if value not in values:
            raise _unsupported(settings, key, value, " or ".join(map(str, values)))
    options = config.get("mecab_kwargs") or {}
    if not isinstance(options, dict):
        raise _unsupported(settings, "mecab_kwargs", options, "a table of options")
    for key in options:
        if key not in ("mecab_dic", "normalize_text") and options[key]:
            accepted = "mecab_dic and normalize_text"
            raise _unsupported(settings, f"mecab_kwargs.{key}", options[key], accepted)
    dictionary = options.get("mecab_dic", "unidic_lite")
    if dictionary not in get_args(Dictionary):
        names = ", ".join(get_args(Dictionary))
        raise _unsupported(settings, "mecab_kwargs.mecab_dic", dictionary, names)
    return WordSplitter(
        dictionary=dictionary,
        normalize=bool(options.get("normalize_text", True)),
        lowercase=settings.option("do_lower_case", (bool,), False),
        characters=config.get("subword_tokenizer_type") == "character",
    )


def _unsupported(
    settings: "TokenizerFilesConfig", key: str, value: object, accepted: str
) -> VerificationError:
    return VerificationError(
        f"{settings.origin}/tokenizer_config.json: {key} = {value!r:.100} is not implemented",
        f"with MeCab, it is {accepted}",
    )


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
        UsageError: see ``WordSplitter.split``.
    """
    pattern = _special_tokens(tokenizer)
    split_texts: list[tuple[list[Word], ...]] = []
    for text in texts:
        parts = text if isinstance(text, tuple) else (text,)
        split_texts.append(tuple(_split_around(splitter, part, pattern) for part in parts))
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
    splitter: Splitter, text: str, special_tokens: re.Pattern[str] | None
) -> list[Word]:
    """Return the words of a text, of which special tokens are some."""
    if not isinstance(text, str):
        raise TypeError("a text is not a string")
    text.encode()  # MeCab would stop at a lone surrogate.
    words: list[Word] = []
    for start, end, is_special in _sections(text, special_tokens):
        section = text[start:end]
        if is_special:
            words.append(Word(section, [(index, index + 1) for index in range(start, end)]))
            continue
        for word in splitter.split(section):
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


def _unchanged(text: str) -> tuple[str, list[Span]]:
    """Return a text, and where each of its characters is."""
    return text, [(index, index + 1) for index in range(len(text))]


def _normalize(text: str) -> tuple[str, list[Span]]:
    """Return a text in NFKC, and where each of its characters is in the text."""
    normalized = unicodedata.normalize("NFKC", text)
    if normalized == text:
        return _unchanged(text)
    origins: list[Span] = []
    pieces = []
    for start, end in _clusters(text):
        piece = unicodedata.normalize("NFKC", text[start:end])
        pieces.append(piece)
        origins += [(start, end)] * len(piece)
    if "".join(pieces) != normalized:  # Characters were composed that do not combine by themselves.
        origins = [(0, len(text))] * len(normalized)
    return normalized, origins


def _clusters(text: str) -> Iterator[Span]:
    """Yield start and end of each character with the marks that follow it."""
    start = 0
    for index, character in enumerate(text):
        # Voiced sound marks of half width are no combining characters until they are normalized.
        is_mark = unicodedata.combining(unicodedata.normalize("NFKC", character)[:1] or " ")
        if index and not is_mark:
            yield start, index
            start = index
    if text:
        yield start, len(text)


@cache
def _tagger(dictionary: str) -> Callable[[str], list[str]]:
    """Return a function that splits a text with a dictionary of MeCab."""
    try:
        fugashi = importlib.import_module("fugashi")
        folder = importlib.import_module(dictionary).DICDIR
    except ImportError as error:
        raise UsageError(
            f"texts of this tokenizer are split by MeCab, and {error.name} is not installed",
            f"pip install fugashi {dictionary.replace('_', '-')}",
        ) from error
    tagger = fugashi.GenericTagger(f'-d "{folder}" -r "{folder}/mecabrc"')
    return lambda text: [word.surface for word in tagger(text)]
