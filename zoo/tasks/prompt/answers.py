"""Answers in generated texts: where they are, and when two of them are the same."""

import json
import re
import string
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence

from zoo.errors import UsageError
from zoo.io.json import dump_json
from zoo.metrics.squad import normalize_answer
from zoo.overrides import override
from zoo.tasks.prompt import pattern_search

# The end of a chain of thought in Wei et al. 2022 (arXiv:2201.11903, appendix G).
PHRASE = re.compile(r"answer is:?[ \t]*", re.IGNORECASE)
NUMBER = re.compile(
    r"[-+]?[$\N{EURO SIGN}\N{POUND SIGN}]?(?:(\d[\d,]*)(?:\.(\d+))?|\.(\d+))%?", re.ASCII
)
SENTENCE_END = re.compile(r"[.!?](?:\s|$)")
# Around an answer; a number keeps its sign and its unit.
OPENING = string.whitespace + "([{\"'`*_"
CLOSING = string.whitespace + string.punctuation.replace("%", "")
EDGES = string.whitespace + string.punctuation
SEARCH_SECONDS = 10.0  # For the texts of a chunk.


def answer_key(answer: str) -> str:
    """Return what equal answers have in common; empty for an answer without content.

    Numbers are equal if their values are: ``$1,000.00``, ``1000`` and ``1000.`` are. Other answers
    are compared like those of SQuAD: without case, punctuation, articles and extra white space. An
    article that is all of an answer, such as the choice ``(a)``, stays.
    """
    match = NUMBER.fullmatch(answer.lstrip(OPENING).rstrip(CLOSING))
    if match is None:
        return normalize_answer(answer) or answer.strip(EDGES).casefold()
    whole, fraction, fraction_only = match.groups()
    digits = (whole or "0").replace(",", "").lstrip("0") or "0"
    decimals = (fraction or fraction_only or "").rstrip("0")
    if decimals:
        digits = f"{digits}.{decimals}"
    is_negative = match.group().startswith("-") and digits != "0"
    return f"-{digits}" if is_negative else digits


class AnswerFinder(ABC):
    """Finds the answers in texts."""

    @abstractmethod
    def find(self, texts: Sequence[str]) -> list[str | None]:
        """Return the answer in each text, or ``None``."""


class FirstLine(AnswerFinder):
    """The answer is the first line."""

    @override
    def find(self, texts: Sequence[str]) -> list[str | None]:
        return [text.strip().partition("\n")[0].strip() or None for text in texts]


class FirstSentence(AnswerFinder):
    """The answer is the first line, up to the end of its first sentence."""

    @override
    def find(self, texts: Sequence[str]) -> list[str | None]:
        first_lines = FirstLine().find(texts)
        sentences = [line and SENTENCE_END.split(line, maxsplit=1)[0] for line in first_lines]
        return [sentence or None for sentence in sentences]


class Conclusion(AnswerFinder):
    """The answer follows the last "answer is" in its line, or else is the last number."""

    @override
    def find(self, texts: Sequence[str]) -> list[str | None]:
        return [self._find(text) for text in texts]

    def _find(self, text: str) -> str | None:
        *_, last_phrase = [None, *PHRASE.finditer(text)]
        if last_phrase is not None:
            answer, _, _ = text[last_phrase.end() :].partition("\n")
        else:
            *_, last_number = [None, *NUMBER.finditer(text)]
            answer = "" if last_number is None else last_number.group()
        return answer.strip().rstrip(".!") or None


class AnswerPattern(AnswerFinder):
    """The answer is what a regular expression matches last: its first group, or all of it.

    The search runs in another process, which is ended after ``seconds``: the time of some
    expressions, such as ``(a+)+b``, doubles with every character of a text.
    """

    def __init__(self, pattern: str, seconds: float = SEARCH_SECONDS) -> None:
        self.pattern = pattern
        self.seconds = seconds
        try:
            re.compile(pattern, re.DOTALL)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(
                f"--answer {pattern!r:.200} is not a regular expression: {error}", "correct it"
            ) from None

    @override
    def find(self, texts: Sequence[str]) -> list[str | None]:
        request = dump_json({"pattern": self.pattern, "texts": list(texts)})
        command = [sys.executable, "-I", pattern_search.__file__]
        try:
            process = subprocess.run(
                command, input=request, capture_output=True, text=True, timeout=self.seconds
            )
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"--answer {self.pattern!r:.200} takes more than {self.seconds:g} seconds for "
                f"{len(texts)} texts",
                "simplify it: what is repeated should match in one way only",
            ) from None
        process.check_returncode()
        answers: list[str | None] = json.loads(process.stdout)
        stripped = [None if answer is None else answer.strip() for answer in answers]
        return [answer or None for answer in stripped]
