"""Warnings about results: they name the line of the user's code, and texts are counted once."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field


class TaskWarning(UserWarning):
    """Warning about results, such as truncated texts."""


# Repeat the warning for every run, even with the same message; filters of the user take precedence.
warnings.filterwarnings("always", category=TaskWarning, append=True)


def warn_user(message: str) -> None:
    """Warn of something in the line of the user's code that called this package."""
    frame = sys._getframe(1)
    level = 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in INTERNAL:
        frame = frame.f_back
        level = level + 1
    warnings.warn(message, TaskWarning, stacklevel=level)


INTERNAL = ("zoo", "contextlib")  # packages whose lines are not the user's


@dataclass
class CutTexts:
    """Texts that were truncated, in all that a command or a function computes.

    Attributes:
        groups: length that texts were cut at, and what reads them whole -> number of texts that
            were longer, and of all texts.
    """

    groups: dict[tuple[int | None, str], tuple[int, int]] = field(default_factory=dict)

    def add(self, count: int, total: int, max_tokens: int | None, remedy: str) -> None:
        """Add the texts of a task, ``count`` of which were longer than ``max_tokens`` tokens."""
        cut, texts = self.groups.get((max_tokens, remedy), (0, 0))
        self.groups[max_tokens, remedy] = (cut + count, texts + total)

    @property
    def count(self) -> int:
        """Number of texts that were cut."""
        return sum(count for count, _ in self.groups.values())

    @property
    def lines(self) -> list[str]:
        """A line for each length that texts were cut at."""
        lines = []
        for (max_tokens, remedy), (count, total) in self.groups.items():
            if count:
                lines.append(cut_line(count, total, max_tokens, remedy))
        return lines


def cut_line(count: int, total: int, max_tokens: int | None, remedy: str = "") -> str:
    """Return the line that says how many texts were cut."""
    line = (
        f"{count:,} of {total:,} texts {'was' if count == 1 else 'were'} longer than "
        f"{max_tokens:,} tokens and {'was' if count == 1 else 'were'} cut"
    )
    return f"{line}; {remedy}" if remedy else line


_collected: ContextVar[CutTexts | None] = ContextVar("collected", default=None)


@contextlib.contextmanager
def collect_cut_texts(*, warn: bool = True) -> Iterator[CutTexts]:
    """Yield the counts of all texts that tasks cut in the block, and warn of them at its end.

    In a block inside of another one, the outer one warns.

    Args:
        warn: whether to warn, or to pass the counts on to the outer block.
    """
    outer = _collected.get()
    cut_texts = CutTexts()
    token = _collected.set(cut_texts)
    try:
        yield cut_texts
    finally:
        _collected.reset(token)
    if not warn:
        return
    if outer is None:
        for line in cut_texts.lines:
            warn_user(line)
        return
    for (max_tokens, remedy), (count, total) in cut_texts.groups.items():
        outer.add(count, total, max_tokens, remedy)


def report_cut_texts(count: int, total: int, max_tokens: int | None, remedy: str) -> None:
    """Count the texts that a task cut, or warn of them outside of ``collect_cut_texts``."""
    collected = _collected.get()
    if collected is not None:
        collected.add(count, total, max_tokens, remedy)
    elif count:
        warn_user(cut_line(count, total, max_tokens, remedy))
