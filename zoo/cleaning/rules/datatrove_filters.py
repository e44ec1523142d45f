"""datatrove's filters as functions of a text."""

from typing import TYPE_CHECKING, Any

from datatrove.data import Document

from zoo.cleaning.rules.base import Removed

if TYPE_CHECKING:
    from zoo.cleaning.rules.base import Cleaner, CountLine

LINE_LABEL = "line-filter-"  # begins the labels of lines that a filter removes


def adapt_filter(document_filter: Any, count_line: "CountLine") -> "Cleaner":
    """Return a filter of datatrove as a function of a text.

    Args:
        document_filter: the filter; it is used for nothing else.
        count_line: called for each line that it removes.
    """

    def update_statistics(*labels: str, value: int = 1, unit: str | None = None) -> None:
        for label in labels:
            if label.startswith(LINE_LABEL):
                count_line(_reason(label.removeprefix(LINE_LABEL)))

    document_filter.stat_update = update_statistics

    def clean(text: str) -> str | Removed:
        document = Document(text=text, id="")
        outcome = document_filter.filter(document)
        reason = "dropped"
        if isinstance(outcome, tuple):
            outcome, reason = outcome
        if not outcome:
            return Removed(_reason(reason))
        cleaned: str = document.text
        return cleaned

    return clean


def _reason(label: str) -> str:
    return label.strip("< ").replace("_", "-").replace(" ", "-")
