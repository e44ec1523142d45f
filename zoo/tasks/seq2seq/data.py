"""Reader of sources and targets: from the rows of tables to samples, of one data set or several."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from zoo.data.readers.labelled import Sample, iter_samples, label_number, text_hash
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.data.readers.text_io import split_name
from zoo.errors import UsageError
from zoo.tasks.seq2seq.text_forms import TextForm


@dataclass(frozen=True, slots=True)
class TextToText:
    """A source text and its target."""

    source: str  # The source with its prefix.
    target: str
    dataset: str  # Name of the data set, empty for none.
    location: str  # File and line, for messages.
    number: float = math.nan  # The label, if the target is that number rounded; else NaN.
    alternatives: tuple[str, ...] = ()  # Further targets that are correct.

    @property
    def references(self) -> tuple[str, ...]:
        """All correct targets."""
        return (self.target, *self.alternatives)

    @property
    def label(self) -> str | list[str]:
        """The target, or a list of several, as rows of reports have them."""
        return list(self.references) if self.alternatives else self.target

    def is_correct(self, text: str) -> bool:
        """Return whether a stripped text equals a target, except for white space around it."""
        return any(text == target.strip() for target in self.references)

    @property
    def hash(self) -> float:
        """Hash of the source, which splits data."""
        return text_hash(self.source)


def dataset_names(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct names of data sets, in order."""
    return tuple(dict.fromkeys(split_name(path)[0] for path in paths))


def iter_text_to_text(
    paths: Sequence[str],
    form_of: Callable[[str], TextForm],
    names: Sequence[str] | None = None,
    problems: RowProblems | None = None,
) -> Iterator[TextToText]:
    """Yield the samples of tables, one at a time; each table has the form of its data set."""
    all_problems = RowProblems() if problems is None else problems
    for path in paths:
        name, file = split_name(path)
        if names is not None and name not in names:
            raise UsageError(
                f"{path} is of no data set that is trained on",
                f"write it as {' or '.join(f'{n}={file}' if n else file for n in names)}",
            )
        form = form_of(name)
        rows = iter_samples([file], form.columns, all_problems)
        yield from all_problems.checked(rows, partial(_text_to_text, form=form, name=name))
    if problems is None:
        all_problems.require_none()


def _text_to_text(row: Sample, *, form: TextForm, name: str) -> TextToText:
    number = label_number(row.label, row.location) if form.rounded else math.nan
    target, *alternatives = form.targets(row)
    return TextToText(form.source(row), target, name, row.location, number, tuple(alternatives))


def review_target(sample: TextToText) -> Reviewed:
    """Return what is reviewed of a source, which may have several targets."""
    return Reviewed([sample.source], None, identity=(sample.source, sample.target))
