"""A rule of `zoo corpus clean`."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.cleaning.rules.base import Cleaner, CleaningRule, CountLine, Removed


@dataclass(frozen=True, kw_only=True)
class NoTables(CleaningRule):
    """Texts without tables of Markdown."""

    name: ClassVar[str] = "no-tables"
    summary: ClassVar[str] = "texts with many vertical bars"

    max_bars: int = 10

    def make_cleaner(self, language: str, count_line: CountLine) -> Cleaner:
        """Return the function that is applied to each text."""

        def clean(text: str) -> str | Removed:
            return Removed("table") if text.count("|") > self.max_bars else text

        return clean
