"""A cache of the token ids of words, for tokenizers that split texts at spaces first.

Most words of a text are repeated. Where a tokenizer splits texts at spaces before anything else,
the ids of a text are those of its words, one after another, and a word is only tokenized when it
first occurs. The ids are the same as without the cache; texts for which this is not certain are
left to the tokenizer:

* texts with a word that begins or ends with a combining mark, a control character or white space
  other than a space, which may combine with the space next to it;
* texts with three spaces in a row, unless the tokenizer drops spaces;
* texts with a word of more than ``MAX_WORD_CHARACTERS``, such as scripts without spaces have;
* texts that are tokenized together and of whose words more than half are new.
"""

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_WORDS = 1 << 17  # Words in the cache, some 30 MB. It is emptied when it is full.
MAX_WORD_CHARACTERS = 64
FIRST = "\n"  # Precedes the first word of a text in the cache. No text contains it.
MODELS = ("WordPiece", "BPE", "Unigram", "WordLevel")
# Normalizers that change a word in the same way whatever precedes and follows its spaces.
NORMALIZERS = (
    "BertNormalizer",
    "Lowercase",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Nmt",
    "Precompiled",
    "StripAccents",
)
DROPPING = ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")  # They drop all spaces.
# Letters that combine with a character after them (``Prepend`` in Unicode's standard annex 29).
PREPENDED = frozenset(
    "\u0d4e\U000111c2\U000111c3\U000113d1\U0001193f\U00011941\U00011a3a\U00011a84\U00011a85"
    "\U00011a86\U00011a87\U00011a88\U00011a89\U00011d46\U00011f02"
)


@dataclass(frozen=True)
class WordCache:
    """The token ids of words."""

    tokenizer: "Tokenizer"
    ordinary_ids: NDArray[Any]  # map of token ids in a text, (vocabulary,)
    drops_spaces: bool  # whether spaces only separate; otherwise a word has the space before it
    ids_by_word: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def for_tokenizer(
        cls, tokenizer: "Tokenizer", tokenizer_json: bytes, ordinary_ids: NDArray[Any]
    ) -> "WordCache | None":
        """Return an empty cache; ``None`` if a tokenizer may not split texts at spaces first.

        Args:
            tokenizer: the tokenizer, for which special tokens in a text are ordinary text.
            tokenizer_json: its definition.
            ordinary_ids: map of token ids in a text, (vocabulary,).
        """
        definition = json.loads(tokenizer_json)
        model = definition["model"]
        # Other added tokens are matched before a text is split, also across spaces.
        has_added_tokens = any(not token["special"] for token in definition["added_tokens"])
        if has_added_tokens or model.get("type") not in MODELS or model.get("dropout"):
            return None
        if not _keeps_words(definition.get("normalizer")):
            return None
        splitter = definition.get("pre_tokenizer") or {}
        if _drops_spaces(splitter):
            return cls(tokenizer, ordinary_ids, drops_spaces=True)
        if _splits_before_spaces(splitter):
            return cls(tokenizer, ordinary_ids, drops_spaces=False)
        return None

    def encode(
        self, texts: Sequence[str], spans_by_text: Sequence[Sequence[tuple[int, int]]]
    ) -> list[list[bytes] | None]:
        """Return the token ids of each sentence of each text; ``None`` to tokenize the text.

        Args:
            texts: texts without line feeds.
            spans_by_text: start and end of each sentence.
        """
        ids_by_text: list[list[bytes] | None] = []
        words_by_text: dict[int, list[list[str]]] = {}  # Of texts with new words, by number.
        for number, (text, spans) in enumerate(zip(texts, spans_by_text, strict=True)):
            sentences = self._words(text, spans)
            ids = self._sentence_ids(sentences)
            ids_by_text.append(ids)
            if ids is None and sentences:
                words_by_text[number] = sentences
        count = 0
        words: set[str] = set()
        for sentences in words_by_text.values():
            for sentence in sentences:
                count += len(sentence)
                words.update(sentence)
        new_words = words.difference(self.ids_by_word)
        if 2 * len(new_words) < count:
            self._add(filter(_is_separate, new_words))
            for number, sentences in words_by_text.items():
                ids_by_text[number] = self._sentence_ids(sentences)
        return ids_by_text

    def _words(self, text: str, spans: Sequence[tuple[int, int]]) -> list[list[str]]:
        """Return the words of each sentence, or none for a text that has to be tokenized."""
        # The first of two spaces is a word of its own, before the second space. Of more spaces,
        # tokenizers take all but the last together.
        if not self.drops_spaces and "   " in text:
            return []
        sentences = []
        previous_end = -1
        for start, end in spans:
            if text[max(previous_end, 0) : start].strip(" "):
                return []  # White space other than spaces is between two sentences.
            sentences.append(text[previous_end + 1 : end].split(" "))
            previous_end = end
        if sentences and not self.drops_spaces:
            sentences[0][0] = FIRST + sentences[0][0]
        return sentences

    def _add(self, words: Iterable[str]) -> None:
        """Tokenize words and add them."""
        new_words = list(words)
        if len(self.ids_by_word) + len(new_words) > MAX_WORDS:
            self.ids_by_word.clear()
        pieces = new_words
        if not self.drops_spaces:
            pieces = []
            for word in new_words:
                pieces.append(word[1:] if word.startswith(FIRST) else f" {word}")
        encodings = self.tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
        ids = chain.from_iterable(encoding.ids for encoding in encodings)
        data = self.ordinary_ids[np.fromiter(ids, np.int64)].tobytes()
        size = self.ordinary_ids.itemsize
        start = 0
        for word, encoding in zip(new_words, encodings, strict=True):
            end = start + size * len(encoding)
            self.ids_by_word[word] = data[start:end]
            start = end

    def _sentence_ids(self, sentences: Sequence[Sequence[str]]) -> list[bytes] | None:
        """Return the token ids of sentences; ``None`` if there is none, or a word is missing."""
        if not sentences:
            return None
        lookup = self.ids_by_word.__getitem__
        try:
            return [b"".join(map(lookup, words)) for words in sentences]
        except KeyError:
            return None


def _keeps_words(normalizer: Mapping[str, Any] | None) -> bool:
    """Return whether a normalizer changes each word separately."""
    if normalizer is None:
        return True
    name = normalizer["type"]
    if name == "Sequence":
        return all(map(_keeps_words, normalizer["normalizers"]))
    if name == "Replace":
        pattern = normalizer["pattern"].get("String", "")
        return bool(pattern) and " " not in pattern and " " not in normalizer["content"]
    return name in NORMALIZERS


def _drops_spaces(splitter: Mapping[str, Any]) -> bool:
    """Return whether a pre-tokenizer splits texts at each space and drops it."""
    name = splitter.get("type")
    if name != "Sequence":
        return name in DROPPING
    steps = splitter["pretokenizers"]
    if len(steps) != 2 or not _is_metaspace(steps[1], ("always",)):
        return False
    splits_at_spaces = (
        steps[0]["type"] == "Split"
        and steps[0]["pattern"] in ({"Regex": " "}, {"String": " "})
        and steps[0]["behavior"] == "Removed"
        and not steps[0]["invert"]
    )
    return splits_at_spaces or steps[0]["type"] == "WhitespaceSplit"


def _splits_before_spaces(splitter: Mapping[str, Any]) -> bool:
    """Return whether a pre-tokenizer splits texts before a space that a word follows."""
    if splitter.get("type") == "ByteLevel":
        return bool(splitter.get("use_regex", True))
    return _is_metaspace(splitter, ("always", "first", "never"))


def _is_metaspace(splitter: Mapping[str, Any], schemes: Sequence[str]) -> bool:
    return (
        splitter.get("type") == "Metaspace"
        and splitter.get("prepend_scheme") in schemes
        and splitter.get("split", True) is True
    )


def _is_separate(word: str) -> bool:
    """Return whether a word is tokenized alike with and without the words next to it."""
    content = word.removeprefix(FIRST)
    if not content:
        return True
    if len(content) > MAX_WORD_CHARACTERS:
        return False
    return _is_boundary(content[0]) and _is_boundary(content[-1])


def _is_boundary(character: str) -> bool:
    """Return whether a character never combines with a space next to it."""
    if character.isascii():
        return "!" <= character <= "~"
    category = unicodedata.category(character)
    if category[0] in "MCZ" or category in ("Sk", "Lm"):
        return False
    return character not in PREPENDED
