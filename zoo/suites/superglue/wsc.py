"""WSC: whether a pronoun refers to a noun phrase."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from zoo.data.readers.problems import RowError
from zoo.data.readers.tables import Row
from zoo.overrides import override
from zoo.suites.answers import Answer, Item
from zoo.suites.superglue.base import BOOLEANS, SuperGlueTask, convert_row

# Words that do not distinguish two referents, as in ``wsc_simple`` of data/postprocessors.py of the
# code released with Raffel et al. 2020, arXiv:1910.10683.
DETERMINERS = frozenset(
    (
        "a",
        "an",
        "few",
        "her",
        "his",
        "each",
        "every",
        "many",
        "much",
        "my",
        "our",
        "some",
        "that",
        "the",
        "their",
        "these",
        "this",
        "those",
        "which",
        "whose",
        "your",
    )
)
NOUN_MARK = "*"
PRONOUN_MARK = "#"
WORD = re.compile(r"\S+")


class Spans(msgspec.Struct):
    """The noun phrase and the pronoun, and the numbers of their first words."""

    span1_index: int
    span1_text: str
    span2_index: int
    span2_text: str


class WSCRow(msgspec.Struct):
    """A line of the files."""

    idx: int
    text: str
    target: Spans
    label: bool | None = None


@dataclass(frozen=True, kw_only=True)
class WinogradSchemas(SuperGlueTask):
    """WSC in the form of SuperGLUE.

    A classifier reads the text with ``*`` around the noun phrase and ``#`` around the pronoun, as
    in ``wsc`` of the code of Raffel et al. 2020; the baseline of SuperGLUE reads no marks, and its
    head has the vectors of both spans, and not that of ``[CLS]``. A text-to-text model reads the
    text with ``*`` around the pronoun, and generates the noun phrase: ``wsc_simple`` of that code,
    which trains on the correct noun phrases only (section 2.4 of the paper).
    """

    @override
    def classifier_items(self, row: Row) -> Iterator[Item]:
        line = convert_row(row, WSCRow)
        target = line.target
        noun_start = find_words(line.text, target.span1_text, target.span1_index, row.location)
        pronoun_start = find_words(line.text, target.span2_text, target.span2_index, row.location)
        spans = [
            (noun_start, target.span1_text, NOUN_MARK),
            (pronoun_start, target.span2_text, PRONOUN_MARK),
        ]
        text = line.text
        for start, words, mark in sorted(spans, reverse=True):
            end = start + len(words)
            text = f"{text[:start]}{mark} {text[start:end]} {mark}{text[end:]}"
        yield Item(
            idx=line.idx, location=row.location, text=text, targets=boolean_targets(line.label)
        )

    @override
    def text_to_text_items(self, row: Row) -> Iterator[Item]:
        line = convert_row(row, WSCRow)
        pronoun = line.target.span2_text
        start = find_words(line.text, pronoun, line.target.span2_index, row.location)
        end = start + len(pronoun)
        words = f"{line.text[:start]} *{pronoun}* {line.text[end:]}".split()
        yield Item(
            idx=line.idx,
            location=row.location,
            text=f"wsc: {' '.join(words)}",
            targets=boolean_targets(line.label),
            details=line.target.span1_text,
        )

    @override
    def training_items(self, items: Sequence[Item], *, text_to_text: bool) -> Iterator[Item]:
        if not text_to_text:
            yield from items
            return
        for item in items:
            if item.targets == (BOOLEANS[True],):
                yield replace(item, targets=(item.details,))

    @override
    def interpret(self, item: Item, answer: Answer) -> Answer:
        if item.details is None:
            return answer
        if not plain_words(answer.text):
            return Answer(None, answer.text)  # Wrong for both labels.
        return Answer(BOOLEANS[is_same_referent(answer.text, item.details)], answer.text)


def boolean_targets(label: bool | None) -> tuple[str, ...]:
    """Return the name of a label as targets; none in test files."""
    return () if label is None else (BOOLEANS[label],)


def find_words(text: str, words: str, index: int, location: str) -> int:
    """Return where words begin in a text: at the word with an index, or else nearest to it.

    Some indices of the released files are those of another word.
    """
    starts = [match.start() for match in WORD.finditer(text)]
    places = []
    for number, start in enumerate(starts):
        if text[start : start + len(words)].lower() == words.lower():
            places.append((abs(number - index), start))
    if not places:
        # Words may follow a quote or a bracket.
        for match in re.finditer(re.escape(words), text, re.IGNORECASE):
            number = sum(start <= match.start() for start in starts) - 1
            places.append((abs(number - index), match.start()))
    if not places:
        raise RowError(f"{location}: {words!r:.100} is not in the text")
    return min(places)[1]


def is_same_referent(prediction: str, referent: str) -> bool:
    """Return whether a generated noun phrase names a referent, as ``wsc_simple`` decides it."""
    predicted = plain_words(prediction)
    correct = plain_words(referent)
    # "Bob" is not "Bob's hat".
    if ("'" in predicted) != ("'" in correct):
        return False
    predicted_words = set(predicted.split(" "))
    correct_words = set(correct.split(" "))
    return predicted_words <= correct_words or correct_words <= predicted_words


def plain_words(text: str) -> str:
    """Return a text in lower case, without determiners."""
    words = text.strip().lower().split(" ")
    return " ".join(word for word in words if word not in DETERMINERS)
