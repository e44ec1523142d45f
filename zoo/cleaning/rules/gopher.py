"""The rules of MassiveText (Rae et al. 2021, arXiv:2112.11446, appendix A.1.1)."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.cleaning.rules.filter_rule import FilterRule


@dataclass(frozen=True, kw_only=True)
class GopherQuality(FilterRule):
    """Texts that look like prose by their words and lines.

    Attributes:
        min_doc_words: smallest number of words that are not punctuation.
        max_doc_words: largest number of such words.
        min_avg_word_length: smallest mean number of characters of a word.
        max_avg_word_length: largest mean number of characters of a word.
        max_symbol_word_ratio: largest number of ``#`` or of ellipses for each word.
        max_bullet_lines_ratio: largest fraction of lines that begin with a bullet.
        max_ellipsis_lines_ratio: largest fraction of lines that end with an ellipsis.
        max_non_alpha_words_ratio: smallest fraction of words with a letter; the name is
            datatrove's.
        min_stop_words: smallest number of different words of eight frequent English ones.
    """

    name: ClassVar[str] = "gopher-quality"
    summary: ClassVar[str] = "texts whose words and lines are not those of prose"
    filter_name: ClassVar[str] = "GopherQualityFilter"

    min_doc_words: int = 50
    max_doc_words: int = 100_000
    min_avg_word_length: float = 3
    max_avg_word_length: float = 10
    max_symbol_word_ratio: float = 0.1
    max_bullet_lines_ratio: float = 0.9
    max_ellipsis_lines_ratio: float = 0.3
    max_non_alpha_words_ratio: float = 0.8
    min_stop_words: int = 2


@dataclass(frozen=True, kw_only=True)
class GopherRepetition(FilterRule):
    """Texts that do not repeat themselves; n-grams have the limits of table A1.

    Attributes:
        dup_line_frac: largest fraction of lines that occurred before.
        dup_para_frac: largest fraction of paragraphs that occurred before.
        dup_line_char_frac: largest fraction of characters in such lines.
        dup_para_char_frac: largest fraction of characters in such paragraphs.
    """

    name: ClassVar[str] = "gopher-repetition"
    summary: ClassVar[str] = "texts that repeat lines, paragraphs or n-grams"
    filter_name: ClassVar[str] = "GopherRepetitionFilter"

    dup_line_frac: float = 0.3
    dup_para_frac: float = 0.3
    dup_line_char_frac: float = 0.2
    dup_para_char_frac: float = 0.2
