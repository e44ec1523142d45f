"""A label for each word: parts of speech, entities."""

from collections.abc import Sequence
from typing import ClassVar

from zoo.data.readers.labelled import Columns
from zoo.data.readers.problems import RowProblems
from zoo.overrides import override
from zoo.probing.settings import Pooling
from zoo.probing.tasks.base import ProbeColumns, ProbedExample, ProbedText, ProbeTask
from zoo.tasks.token_classification.data import (
    WordsSample,
    marks_spans,
    read_words,
    repair_samples,
)


class WordProbe(ProbeTask):
    """A class for each word, as in fine-tuning read at its first token by default."""

    name: ClassVar[str] = "token-classification"
    summary: ClassVar[str] = "A label for each word: CoNLL, CoNLL-U, or lists in tables."
    default_pooling: ClassVar[Pooling] = "first"
    control: ClassVar[str] = "a word has the random label of its type"

    @override
    def read(
        self, paths: Sequence[str], columns: ProbeColumns, problems: RowProblems
    ) -> list[ProbedText]:
        self.require_no_pair(columns)
        names = Columns(columns.text or "text", columns.label or "label")
        samples = read_words(paths, names, problems)
        if marks_spans(name for sample in samples for name in sample.labels):
            samples = repair_samples(samples, paths)
        return list(map(_probed_text, samples))


def _probed_text(sample: WordsSample) -> ProbedText:
    examples = []
    spans = []
    for number, (word, label) in enumerate(zip(sample.words, sample.labels, strict=True)):
        spans.append((number, number + 1))
        location = sample.word_location(number)
        examples.append(ProbedExample(label, (number,), word, location))
    return ProbedText(
        " ".join(sample.words),
        tuple(examples),
        sample.location,
        words=sample.words,
        spans=tuple(spans),
    )
