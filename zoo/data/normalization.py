"""How many characters of a corpus the normalizer of its tokenizer changes."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.checkpoint import TOKENIZER
from zoo.io.json import JsonStruct

if TYPE_CHECKING:
    from tokenizers.normalizers import Normalizer

FULL_CHARACTERS = 1 << 20  # So many characters of a corpus are in the sample without a gap,
GAP_CHARACTERS = 1 << 20  # and after them, a document
PIECE_CHARACTERS = 1 << 14  # up to so many characters, each time so many have passed.
SPACE = "\u2581"  # In pieces of SentencePiece, a space.


class NormalizationRecord(JsonStruct, kw_only=True):
    """Characters of the texts that a tokenizer changes before it splits them."""

    characters: int  # characters that were compared, without white space
    changed: int  # characters that are another one, or none, in the normalized text
    sampled: bool  # whether the corpus has more texts than were compared

    def description(self) -> str:
        """Return a phrase for a plan."""
        if not self.changed:
            return "no character of the texts changes"
        share = self.changed / self.characters
        of_what = "a sample of the texts" if self.sampled else "the texts"
        return (
            f"{self.changed:,} of {self.characters:,} characters ({share:.2%}) of {of_what} change"
        )


class NormalizationSample:
    """The words of a sample of documents, which are counted while the documents pass by.

    The sample depends only on the documents. It has all of the first million characters, and a
    piece of a document for every further million.
    """

    def __init__(self) -> None:
        self.words: Counter[str] = Counter()
        self._total = 0  # Number of characters that have passed.
        self._next = 0  # Number of characters after which a document is in the sample.
        self._is_partial = False

    def watch(self, documents: Iterable[str]) -> Iterator[str]:
        """Yield documents, and add some of them to the sample."""
        for document in documents:
            if self._total >= self._next:
                self.words.update(document[:PIECE_CHARACTERS].split())
                if self._total >= FULL_CHARACTERS:
                    self._next = self._total + GAP_CHARACTERS
                self._is_partial |= len(document) > PIECE_CHARACTERS
            else:
                self._is_partial = True
            self._total += len(document)
            yield document

    def record(self, tokenizer_json: bytes) -> NormalizationRecord:
        """Return how many characters of the sample a tokenizer changes.

        Args:
            tokenizer_json: contents of ``tokenizer.json``.
        """
        from zoo.tokenizers.tokenizer_json import parse

        normalizer = parse(tokenizer_json, Path(TOKENIZER)).normalizer
        characters = 0
        changed = 0
        for word, count in self.words.items():
            characters += count * len(word)
            if normalizer is not None:
                changed += count * _changed_characters(word, normalizer)
        return NormalizationRecord(characters=characters, changed=changed, sampled=self._is_partial)


def _changed_characters(word: str, normalizer: "Normalizer") -> int:
    """Return how many characters of a word are not in the same order in its normalized text."""
    # White space is left out: some normalizers add it around Chinese characters or before words.
    normalized = "".join(normalizer.normalize_str(word).replace(SPACE, " ").split())
    if normalized == word:
        return 0
    if len(normalized) == len(word):
        return sum(map(str.__ne__, word, normalized))
    start = 0
    shortest = min(len(word), len(normalized))
    while start < shortest and word[start] == normalized[start]:
        start += 1
    end = 0
    while end < shortest - start and word[-1 - end] == normalized[-1 - end]:
        end += 1
    return len(word) - start - end
