"""Texts to tokenize: a file of difficult cases, and the English of Python's reference."""

import pydoc_data.topics
from functools import cache
from pathlib import Path

TORTURE = Path(__file__).parents[1] / "fixtures" / "torture.txt"


@cache
def torture() -> list[str]:
    return TORTURE.read_bytes().decode("utf-8").split("\n")


@cache
def prose(most: int | None = None) -> list[str]:
    """Return lines of Python's language reference: 11,000 lines of English and code."""
    lines = "\n".join(pydoc_data.topics.topics.values()).split("\n")
    return lines[:most]
