"""Texts to tokenize: a file of hard cases, and real English that is on every machine."""

import pydoc_data.topics
from functools import cache
from pathlib import Path

TORTURE = Path(__file__).parents[1] / "data" / "torture.txt"


@cache
def torture() -> list[str]:
    return TORTURE.read_bytes().decode("utf-8").split("\n")


@cache
def prose(most: int | None = None) -> list[str]:
    """The language reference of Python, line by line: 11,000 lines of English and code."""
    lines = "\n".join(pydoc_data.topics.topics.values()).split("\n")
    return lines[:most]


def folder(path: Path, most: int) -> list[str]:
    """Lines of all text files of a folder that are not empty, in order of their names."""
    lines: list[str] = []
    for file in sorted(path.rglob("*.txt")):
        lines += [line for line in file.read_text("utf-8").split("\n") if line.strip()]
        if len(lines) >= most:
            break
    return lines[:most]
