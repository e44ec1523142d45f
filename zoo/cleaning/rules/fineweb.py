"""The rules that FineWeb adds to those of C4 and Gopher (Penedo et al. 2024, section 3.5)."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.cleaning.rules.filter_rule import FilterRule


@dataclass(frozen=True, kw_only=True)
class FineWebQuality(FilterRule):
    """Texts that are not lists of short or repeated lines.

    Attributes:
        line_punct_thr: smallest fraction of lines that end with an end mark.
        short_line_thr: largest fraction of short lines.
        short_line_length: largest number of characters of a short line.
        char_duplicates_ratio: largest fraction of characters in lines that occurred before.
        new_line_ratio: largest number of line feeds for each word.
    """

    name: ClassVar[str] = "fineweb-quality"
    summary: ClassVar[str] = "texts that are lists of short or repeated lines"
    filter_name: ClassVar[str] = "FineWebQualityFilter"

    line_punct_thr: float = 0.12
    short_line_thr: float = 0.67
    short_line_length: int = 30
    char_duplicates_ratio: float = 0.01
    new_line_ratio: float = 0.3
