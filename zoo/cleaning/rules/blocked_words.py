"""Texts with words of a list, such as C4's list of offensive words."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from zoo.cleaning.rules.base import Cleaner, CleaningRule, CountLine, Removed
from zoo.data.readers.text_io import read_lines
from zoo.errors import UsageError
from zoo.overrides import override


@dataclass(frozen=True, kw_only=True)
class BlockedWords(CleaningRule):
    """Texts without words of a list, in any case.

    The released code of C4 asks for a character other than a letter on both sides, so that a word
    at the start or the end of a line does not count; here the start and the end count as well, as
    in datatrove.

    Attributes:
        file: a word or phrase on each line; nothing is downloaded.
    """

    name: ClassVar[str] = "blocked-words"
    summary: ClassVar[str] = "texts with words of a list"

    file: str

    @property
    @override
    def files(self) -> tuple[str, ...]:
        return (self.file,)

    @override
    def make_cleaner(self, language: str, count_line: CountLine) -> Cleaner:
        words = [line.lower() for line in read_lines(Path(self.file)) if line]
        if not words:
            raise UsageError(f"{self.file} has no words", "give a word on each line")
        alternatives = "|".join(re.escape(word) for word in sorted(set(words)))
        pattern = re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)")

        def clean(text: str) -> str | Removed:
            if pattern.search(text.lower()):
                return Removed("blocked-word")
            return text

        return clean
