"""Edge probing: a label for a span of words, or for two, such as a dependency or a role."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from zoo.data.readers.documents import iter_files
from zoo.data.readers.labelled import label_name
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.tables import Row, read_rows, suffix_of
from zoo.errors import UsageError
from zoo.io.numbers import parse_int
from zoo.overrides import override
from zoo.probing.settings import Pooling
from zoo.probing.tasks.base import ProbeColumns, ProbedExample, ProbedText, ProbeTask
from zoo.tasks.token_classification.data import CONLLU, CONLLU_COLUMNS, sentence_lines

TARGETS = "targets"
SPANS = ("span1", "span2")
FORM = CONLLU_COLUMNS.index("form")
HEAD = CONLLU_COLUMNS.index("head")
RELATION = CONLLU_COLUMNS.index("deprel")


class EdgeProbe(ProbeTask):
    """A class for each span, or pair of spans, of a text (Tenney et al. 2019, arXiv:1905.06316).

    The vector of a span is the mean of its tokens', and a pair has both vectors, one after the
    other. The paper pools by attention that is learned with the probe. A mean has nothing to
    learn, so that scores, selectivity and code lengths are of the representation alone, and needs
    no states of single tokens after the pass over the text.
    """

    name: ClassVar[str] = "edge"
    summary: ClassVar[str] = "A label for spans: JSON lines with targets, or relations of CoNLL-U."
    default_pooling: ClassVar[Pooling] = "mean"
    control: ClassVar[str] = "an edge has the random label of the words of its last span"

    @override
    def read(
        self, paths: Sequence[str], columns: ProbeColumns, problems: RowProblems
    ) -> list[ProbedText]:
        self.require_no_pair(columns)
        if columns.label is not None:
            raise UsageError(
                "labels of edges are in the targets of JSON lines, or the relations of CoNLL-U",
                "leave --label out",
            )
        text_column = columns.text or "text"

        def read_file(file: Path, file_problems: RowProblems) -> Iterator[ProbedText]:
            if suffix_of(file) == CONLLU:
                sentences = sentence_lines(file, universal=True)
                return file_problems.checked(sentences, partial(_dependencies, file))
            rows = read_rows(file, [text_column, TARGETS], file_problems)
            return file_problems.checked(rows, partial(_targets, text_column=text_column))

        texts = iter_files(paths, read_file, problems, "edges", "give labelled spans")
        return [text for text in texts if text.examples]


def _targets(row: Row, *, text_column: str) -> ProbedText:
    """Return a row of the format of jiant: spans count words from 0, without the last one's end."""
    words = tuple(row.text(text_column).split())
    targets = row.values[TARGETS]
    if not isinstance(targets, list):
        raise RowError(f"{row.location}: {TARGETS} is not a list", "give a list of objects")
    builder = _EdgeBuilder(words)
    for number, target in enumerate(targets, 1):
        location = f"{row.location}, target {number}"
        if not isinstance(target, dict):
            raise RowError(f"{location} is not an object", "give it span1 and label")
        spans = [
            _span(target[name], words, f"{location}: {name}") for name in SPANS if name in target
        ]
        if SPANS[0] not in target:
            raise RowError(f"{location} has no {SPANS[0]}", "give it span1 and label")
        builder.add(spans, _label(target.get("label"), location), location)
    return builder.text(row.location)


def _span(value: Any, words: Sequence[str], location: str) -> tuple[int, int]:
    is_pair = isinstance(value, list) and len(value) == 2
    if not is_pair or not all(type(number) is int for number in value):
        raise RowError(f"{location} is {value!r:.80}", "give two numbers, such as [0, 2]")
    start, end = value
    if not 0 <= start < end <= len(words):
        raise RowError(
            f"{location} is [{start}, {end}], and the text has {len(words)} words",
            "count words from 0, up to the one after the span",
        )
    return start, end


def _label(value: Any, location: str) -> str:
    if isinstance(value, list):
        if len(value) != 1:
            raise RowError(
                f"{location} has {len(value)} labels", "a probe predicts one; give one label"
            )
        (value,) = value
    return label_name(value, location)


def _dependencies(file: Path, lines: Sequence[tuple[int, list[str]]]) -> ProbedText:
    """Return the relations of a sentence: its edges lead from heads to dependents."""
    for number, cells in lines:
        if len(cells) <= RELATION:
            raise RowError(f"{file}:{number} has {len(cells)} columns, and CoNLL-U has 10")
    words = tuple(cells[FORM].strip(" ") for _, cells in lines)
    builder = _EdgeBuilder(words)
    for dependent, (number, cells) in enumerate(lines):
        location = f"{file}:{number}"
        head = parse_int(cells[HEAD])
        if head is None or not 0 <= head <= len(words):
            raise RowError(f"{location}: the head is {cells[HEAD]!r}, which is not a word's number")
        if head > 0:
            spans = [(head - 1, head), (dependent, dependent + 1)]
            builder.add(spans, label_name(cells[RELATION], location), location)
    return builder.text(f"{file}:{lines[0][0]}")


class _EdgeBuilder:
    """Collects the edges of a text; a span that several edges have is one span of the text."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        self._spans: dict[tuple[int, int], int] = {}
        self._examples: list[ProbedExample] = []

    def add(self, spans: Sequence[tuple[int, int]], label: str, location: str) -> None:
        """Add an edge."""
        numbers = tuple(self._spans.setdefault(span, len(self._spans)) for span in spans)
        start, end = spans[-1]
        control_type = " ".join(self._words[start:end])
        self._examples.append(ProbedExample(label, numbers, control_type, location))

    def text(self, location: str) -> ProbedText:
        """Return the text with its edges."""
        return ProbedText(
            " ".join(self._words),
            tuple(self._examples),
            location,
            words=self._words,
            spans=tuple(self._spans),
        )
