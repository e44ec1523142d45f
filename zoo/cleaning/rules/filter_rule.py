"""Rules that are a filter of datatrove with the same settings."""

from dataclasses import asdict, dataclass
from typing import ClassVar

from zoo.cleaning.rules.base import Cleaner, CleaningRule, CountLine
from zoo.overrides import override


@dataclass(frozen=True, kw_only=True)
class FilterRule(CleaningRule):
    """A rule whose fields are arguments of a filter of datatrove.

    Attributes:
        filter_name: name of its class in ``datatrove.pipeline.filters``.
    """

    filter_name: ClassVar[str]

    @override
    def make_cleaner(self, language: str, count_line: CountLine) -> Cleaner:
        from datatrove.pipeline import filters

        from zoo.cleaning.rules.datatrove_filters import adapt_filter
        from zoo.cleaning.words import KeepingTokenizer

        filter_class = getattr(filters, self.filter_name)
        tokenizer = KeepingTokenizer(language)
        return adapt_filter(filter_class(**asdict(self), language=tokenizer), count_line)
