"""Texts that know where their characters come from, through replacements and normalization."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

from zoo.tokenizers.words.encoding import Span, Word

UnicodeForm = Literal["NFC", "NFD", "NFKC", "NFKD"]


class TracedText:
    """A text, and where its characters are in the text that it was made from.

    Methods return a new text.

    Args:
        text: the text.
        origins: start and end of each character in the original text; by default, this is it.
    """

    def __init__(self, text: str, origins: Sequence[Span] | None = None) -> None:
        self.text = text
        self._origins = origins

    @cached_property
    def origins(self) -> Sequence[Span]:
        """Start and end of each character in the original text."""
        if self._origins is None:
            return [(index, index + 1) for index in range(len(self.text))]
        return self._origins

    @property
    def span(self) -> Span:
        """Start and end of the text in the original text."""
        return (self.origins[0][0], self.origins[-1][1]) if self.origins else (0, 0)

    def sub(
        self, pattern: "re.Pattern[str] | Any", replacement: "str | Callable[[Any], str]"
    ) -> "TracedText":
        """Replace matches, as ``re.sub`` does.

        Args:
            pattern: a pattern of ``re`` or ``regex``.
            replacement: a template, or a function that returns the text for a match.
        """
        pieces: list[str] = []
        origins: list[Span] = []
        end = 0
        for match in pattern.finditer(self.text):
            old = match.group()
            if callable(replacement):
                new = replacement(match)
            elif "\\" in replacement:
                new = match.expand(replacement)
            else:
                new = replacement
            if new == old:
                continue
            start = match.start()
            pieces += (self.text[end:start], new)
            origins += self.origins[end:start]
            end = match.end()
            origins += _replaced_origins(old, new, self.origins[start:end], self._place(start))
        if not pieces:
            return self
        pieces.append(self.text[end:])
        origins += self.origins[end:]
        return TracedText("".join(pieces), origins)

    def replace(self, old: str, new: str) -> "TracedText":
        """Replace a text, as ``str.replace`` does."""
        if old not in self.text:
            return self
        return self.sub(re.compile(re.escape(old)), lambda _: new)

    def map_characters(
        self, transform: Callable[[str], str], expected: str | None = None
    ) -> "TracedText":
        """Replace each character.

        Args:
            transform: returns what a character becomes, any number of characters.
            expected: the result, if characters depend on their neighbours; where it differs in
                length from the characters one by one, each of its characters comes from the text
                as a whole.
        """
        pieces = list(map(transform, self.text))
        text = "".join(pieces) if expected is None else expected
        if text == self.text:
            return self
        origins: list[Span] = []
        for piece, origin in zip(pieces, self.origins, strict=True):
            origins += [origin] * len(piece)
        if len(origins) != len(text):
            origins = [self.span] * len(text)
        return TracedText(text, origins)

    def lower(self) -> "TracedText":
        """Lower-case the text, as ``str.lower`` does."""
        return self.map_characters(str.lower, self.text.lower())

    def normalize(self, form: UnicodeForm) -> "TracedText":
        """Normalize the text to a form of Unicode."""
        text = unicodedata.normalize(form, self.text)
        if text == self.text:
            return self
        origins: list[Span] = []
        pieces = []
        for start, end in _clusters(self.text):
            piece = unicodedata.normalize(form, self.text[start:end])
            pieces.append(piece)
            place = (self.origins[start][0], self.origins[end - 1][1])
            origins += [place] * len(piece)
        if "".join(pieces) != text:  # Characters were composed that do not combine by themselves.
            origins = [self.span] * len(text)
        return TracedText(text, origins)

    def strip(self) -> "TracedText":
        """Remove white space at both ends, as ``str.strip`` does."""
        start = len(self.text) - len(self.text.lstrip())
        return self.cut(start, start + len(self.text.strip()))

    def cut(self, start: int, end: int) -> "TracedText":
        """Return a part of the text."""
        return TracedText(self.text[start:end], self.origins[start:end])

    def become(self, text: str) -> "TracedText":
        """Return another text in place of this one, as a whole."""
        return self if text == self.text else TracedText(text, [self.span] * len(text))

    @classmethod
    def join(cls, parts: "Sequence[TracedText]") -> "TracedText":
        """Join texts by spaces."""
        origins: list[Span] = []
        for index, part in enumerate(parts):
            if index:
                end = origins[-1][1] if origins else 0
                origins.append((end, end))
            origins += part.origins
        return cls(" ".join(part.text for part in parts), origins)

    def word(self) -> Word:
        """Return the text as a word."""
        return Word(self.text, self.origins)

    def _place(self, index: int) -> int:
        """Return where the character at an index begins, or where the text ends."""
        if index < len(self.origins):
            return self.origins[index][0]
        return self.origins[-1][1] if self.origins else 0


def _replaced_origins(old: str, new: str, origins: Sequence[Span], place: int) -> Sequence[Span]:
    """Return where the characters of a replacement come from.

    Args:
        old: the text that is replaced.
        new: the text in its place.
        origins: start and end of each character of ``old``.
        place: where ``old`` begins.
    """
    if len(old) == len(new):
        return origins
    head = _common_characters(old, new)
    tail = _common_characters(reversed(old[head:]), reversed(new[head:]))
    middle = origins[head : len(old) - tail]
    if middle:
        source = (middle[0][0], middle[-1][1])
    else:  # Characters are inserted, and come from nowhere.
        position = origins[head - 1][1] if head else place
        source = (position, position)
    inserted = [source] * (len(new) - head - tail)
    return [*origins[:head], *inserted, *origins[len(old) - tail :]]


def _common_characters(first: Iterable[str], second: Iterable[str]) -> int:
    """Return how many characters at the beginning are equal."""
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count


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
