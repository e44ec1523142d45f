"""Texts that share a passage with evaluation data."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from zoo.cleaning.rules.base import Cleaner, CleaningRule, CountLine, Removed
from zoo.data.readers.documents import ReaderConfig, expand_paths, read_documents
from zoo.errors import UsageError
from zoo.overrides import override

MIN_WORDS = 8


@dataclass(frozen=True, kw_only=True)
class Decontaminate(CleaningRule):
    """Texts without a run of words of the evaluation data.

    Case, accents, digits, punctuation and white space are ignored. A run has 13 words, as in
    Brown et al. 2020 (arXiv:2005.14165), appendix C. A shorter evaluation text counts as a whole if
    it has at least 8 words, and not at all otherwise.

    Attributes:
        evaluation: files, directories or patterns with the evaluation data.
        text_field: column of the text in tables, or its key in JSON lines.
        ngram: number of words of a run.
    """

    name: ClassVar[str] = "decontaminate"
    summary: ClassVar[str] = "texts that share 13 words with evaluation data"

    evaluation: tuple[str, ...]
    text_field: str = "text"
    ngram: int = 13

    def __post_init__(self) -> None:
        if not self.evaluation:
            raise ValueError("evaluation is empty")
        if self.ngram < 1:
            raise ValueError("ngram has to be at least 1")

    @property
    @override
    def files(self) -> tuple[str, ...]:
        return tuple(str(path) for path in expand_paths(self.evaluation))

    @override
    def make_cleaner(self, language: str, count_line: CountLine) -> Cleaner:
        from datatrove.utils.text import simplify_text

        reader = ReaderConfig(document_separator="line", text_field=self.text_field)
        runs: dict[int, set[str]] = {}
        for text in read_documents(expand_paths(self.evaluation), reader):
            words = simplify_text(text).split()
            length = min(self.ngram, len(words))
            if length >= min(self.ngram, MIN_WORDS):
                runs.setdefault(length, set()).update(_runs(words, length))
        if not runs:
            raise UsageError(
                f"no text of {', '.join(self.evaluation)} has {MIN_WORDS} words", "give longer ones"
            )

        def clean(text: str) -> str | Removed:
            words = simplify_text(text).split()
            for length, known_runs in runs.items():
                for run in _runs(words, length):
                    if run in known_runs:
                        return Removed("contaminated")
            return text

        return clean


def _runs(words: list[str], length: int) -> Iterator[str]:
    """Yield the runs of so many words."""
    for start in range(len(words) - length + 1):
        yield " ".join(words[start : start + length])
