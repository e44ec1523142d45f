"""A label for each text, or pair of texts."""

from collections.abc import Sequence
from typing import ClassVar

from zoo.data.readers.labelled import Columns, Sample, iter_samples, label_name
from zoo.data.readers.problems import RowProblems
from zoo.overrides import override
from zoo.probing.settings import Pooling
from zoo.probing.tasks.base import ProbeColumns, ProbedExample, ProbedText, ProbeTask


class TextProbe(ProbeTask):
    """A class for each text: its vector is pooled from all of its tokens."""

    name: ClassVar[str] = "text-classification"
    summary: ClassVar[str] = "A label for each text, or pair of texts, of a table."
    default_pooling: ClassVar[Pooling] = "mean"
    control: ClassVar[str] = "a text has the random label of its longest word"

    @override
    def read(
        self, paths: Sequence[str], columns: ProbeColumns, problems: RowProblems
    ) -> list[ProbedText]:
        names = Columns(columns.text or "text", columns.label or "label", columns.pair)
        samples = iter_samples(paths, names, problems)
        return list(problems.checked(samples, _probed_text))


def _probed_text(sample: Sample) -> ProbedText:
    label = label_name(sample.label, sample.location)
    example = ProbedExample(label, (0,), longest_word(sample), sample.location)
    return ProbedText(sample.text, (example,), sample.location, sample.pair)


def longest_word(sample: Sample) -> str:
    """Return the longest word of a text or pair, the first of several.

    A control task has to be a function of what also occurs in other texts: with a random label for
    each text, nothing could be predicted of texts to evaluate (Hewitt and Liang 2019, section 2).
    First words are often the same in all texts, and long ones are not.
    """
    words = " ".join(sample.texts).split()
    return max(words, key=len, default="")
