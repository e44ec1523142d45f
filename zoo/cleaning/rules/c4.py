"""The rules of C4 (Raffel et al. 2020, section 2.2)."""

from dataclasses import dataclass
from typing import ClassVar

from zoo.cleaning.rules.base import Cleaner, CleaningRule, CountLine
from zoo.overrides import override


@dataclass(frozen=True, kw_only=True)
class C4(CleaningRule):
    """Lines that are sentences, of texts that are prose.

    The order of the rules is that of the released code (``c4_utils.py`` of TensorFlow Datasets),
    and so are the defaults. The paper lists the rules in another order, in which an end mark is
    tested before words of 1,000 characters; its first version asks for 5 sentences and lines of 3
    words. datatrove's filter differs from the released code in two points: an apostrophe is an end
    mark as well, and words are counted before citations are removed.

    Attributes:
        min_num_sentences: smallest number of sentences of a text.
        min_words_per_line: smallest number of words of a line.
        max_word_length: largest number of characters of a word of a line.
        terminal_punctuation: whether lines without an end mark are removed.
        remove_citations: whether marks such as ``[1]`` and ``[edit]`` are removed.
    """

    name: ClassVar[str] = "c4"
    summary: ClassVar[str] = "lines that are no sentences, texts with code or filler text"

    min_num_sentences: int = 3
    min_words_per_line: int = 5
    max_word_length: int = 1000
    terminal_punctuation: bool = True
    remove_citations: bool = True

    @override
    def make_cleaner(self, language: str, count_line: CountLine) -> Cleaner:
        from datatrove.pipeline.filters import C4QualityFilter

        from zoo.cleaning.rules.datatrove_filters import adapt_filter
        from zoo.cleaning.words import KeepingTokenizer

        document_filter = C4QualityFilter(
            min_num_sentences=self.min_num_sentences,
            min_words_per_line=self.min_words_per_line,
            max_word_length=self.max_word_length,
            filter_no_terminal_punct=self.terminal_punctuation,
            remove_citations=self.remove_citations,
            language=KeepingTokenizer(language),
        )
        return adapt_filter(document_filter, count_line)


@dataclass(frozen=True, kw_only=True)
class C4Paragraphs(CleaningRule):
    """Texts with three lines of at least 200 characters, as in mC4."""

    name: ClassVar[str] = "c4-paragraphs"
    summary: ClassVar[str] = "texts without three lines of 200 characters (mC4)"

    @override
    def make_cleaner(self, language: str, count_line: CountLine) -> Cleaner:
        from datatrove.pipeline.filters import C4ParagraphFilter

        from zoo.cleaning.rules.datatrove_filters import adapt_filter

        return adapt_filter(C4ParagraphFilter(), count_line)
