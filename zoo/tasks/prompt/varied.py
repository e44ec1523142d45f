"""Accuracy over combinations of the parts of a prompt, and how much it depends on each part."""

import itertools
from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from zoo.data.readers.labelled import (
    Columns,
    Sample,
    iter_samples,
    label_name,
    sort_labels,
)
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import Reviewed, review_class
from zoo.errors import UsageError
from zoo.evaluation.base import Evaluation, Prediction, Result, Samples
from zoo.inference.processing.records import TextExample
from zoo.inference.task_warnings import collect_cut_texts
from zoo.metrics.intervals import interval
from zoo.metrics.variation import bootstrap_rows, condition_means, factor_variation
from zoo.overrides import override

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.inference.task import Task

Value = TypeVar("Value", str, float)

MAX_SETTINGS = 10_000  # Combinations of the levels of factors.


@dataclass(frozen=True)
class Factor:
    """A part of a prompt that is varied: its name, and a description of each level."""

    name: str
    levels: tuple[str | int, ...]
    # Name of a factor: the levels of this one mean something else at each of its levels.
    within: str = ""
    # Whether the levels are draws of many, over which the accuracy of a condition is a mean.
    is_drawn: bool = False
    # Name of a factor -> its levels at which this one changes nothing.
    idle_at: Mapping[str, Collection[int]] = field(default_factory=dict)


class VariedEvaluation(Evaluation):
    """Accuracy over all combinations of some factors.

    The details have the 95 % bootstrap interval of the mean accuracy, the accuracy of each
    combination with its interval, and for each factor with several levels the range and the
    standard deviation of the accuracy over its levels, with the interval of that deviation.
    """

    templates: Sequence[str]
    words: list[dict[str, str]]  # Label -> word, for each choice of words.

    def __init__(
        self,
        *args: Any,
        text: str = Columns.text,
        pair: str | None = None,
        label: str = Columns.label,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.columns = Columns(text, label, pair)
        self.seed = seed

    @abstractmethod
    def factors(self, labels: Sequence[str]) -> list[Factor]:
        """Return the factors; ``labels`` are those of the data."""

    @abstractmethod
    def task_of(self, levels: Sequence[int]) -> "Task":
        """Return the task with a level of each factor."""

    @abstractmethod
    def prediction_of(self, added: Mapping[str, Any]) -> str | None:
        """Return the label in the values that the task adds to a record."""

    def targets_of(self, sample: Sample) -> tuple[str, ...]:
        """Return the labels of a sample, any of which is right."""
        return (label_name(sample.label, sample.location),)

    def is_correct(self, prediction: str | None, targets: Sequence[str]) -> bool:
        """Return whether a prediction is right."""
        return prediction in targets

    def reviewed(self, sample: Sample) -> Reviewed:
        """Return what is reviewed of a sample."""
        return review_class(sample)

    def prediction_row(self, sample: Sample, added: Mapping[str, Any]) -> Prediction:
        """Return a row of ``--predictions``."""
        targets = self.targets_of(sample)
        prediction = self.prediction_of(added)
        scores = added.get("scores")
        # A list of scores is in the order of the labels, the best first.
        best_score = scores[0] if isinstance(scores, list) else None
        row = {"location": sample.location, "text": sample.text}
        if sample.pair is not None:
            row["pair"] = sample.pair
        return {
            **row,
            "label": targets[0],
            "prediction": prediction,
            "probability": added.get("score", best_score),
            "correct": self.is_correct(prediction, targets),
        }

    def prompt_key(self, levels: Sequence[int]) -> Hashable:
        """Return what the predictions depend on: settings with equal keys are computed once."""
        return tuple(levels)

    def label_words(self) -> Sequence[Mapping[str, str]]:
        """Return all choices of label words; none if the labels of the data are their words."""
        return self.words

    def check_sample(self, sample: Sample) -> Sample:
        """Return a sample whose label can be predicted."""
        name = label_name(sample.label, sample.location)
        for words in self.label_words():
            if name not in words:
                raise RowError(
                    f"{sample.location} has the label {name!r}, which has no word",
                    f"label words are for {', '.join(words)}",
                )
        return sample

    def word_factor(self, labels: Sequence[str]) -> Factor:
        """Return the words of the labels, which are the labels by default."""
        if not self.words:
            self.words = [{label: label for label in labels}]
        descriptions = []
        for words in self.words:
            assignments = [f"{label}={word}" for label, word in words.items()]
            descriptions.append(",".join(assignments))
        return Factor("label words", tuple(descriptions))

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        def read(problems: RowProblems) -> Iterable[Sample]:
            return problems.checked(iter_samples(files, self.columns, problems), self.check_sample)

        samples = self.samples(read, self.reviewed)
        targets = [self.targets_of(sample) for sample in samples]
        factors = self.factors(sort_labels([labels[0] for labels in targets]))
        level_numbers = [range(len(factor.levels)) for factor in factors]
        settings = list(itertools.product(*level_numbers))
        if len(settings) > MAX_SETTINGS:
            raise UsageError(
                f"there are {len(settings):,} combinations of templates, words, examples and "
                "orders",
                f"give at most {MAX_SETTINGS:,}",
            )
        correct, unanswered = self._answer(settings, samples, targets)
        accuracy = correct.mean(1)
        drawn = bootstrap_rows(correct, self.seed)
        metrics = {"accuracy": float(accuracy.mean())}
        details: dict[str, Any] = {"intervals": {"accuracy": interval(drawn.mean(1))}}
        if len(settings) > 1:
            metrics["lowest"] = float(accuracy.min())
            metrics["highest"] = float(accuracy.max())
            details["variation"] = _variation(factors, settings, accuracy, drawn)
            conditions = _condition_rows(factors, settings, accuracy, drawn, self.seed)
            if conditions:
                details["conditions"] = conditions
            details["prompts"] = _prompt_rows(factors, settings, accuracy, drawn)
        if unanswered.any():
            metrics["unanswered"] = float(unanswered.mean())
        metrics["samples"] = len(targets)
        return Result(metrics, details)

    def _answer(
        self,
        settings: Sequence[Sequence[int]],
        samples: "Samples[Sample]",
        targets: Sequence[Sequence[str]],
    ) -> "tuple[NDArray[np.bool_], NDArray[np.bool_]]":
        """Return which samples each setting answers correctly and not at all, (settings, samples).

        Args:
            settings: a level of each factor.
            samples: the samples.
            targets: the correct labels of each sample.
        """
        import numpy as np

        correct = np.empty((len(settings), len(targets)), bool)
        unanswered = np.empty((len(settings), len(targets)), bool)
        first_settings: dict[Hashable, int] = {}  # Key -> the setting that is computed.
        keys = [self.prompt_key(levels) for levels in settings]
        number_of_prompts = len(set(keys))
        for number, (levels, key) in enumerate(zip(settings, keys, strict=True)):
            if key in first_settings:
                correct[number] = correct[first_settings[key]]
                unanswered[number] = unanswered[first_settings[key]]
                continue
            first_settings[key] = number
            label = "evaluating"
            if number_of_prompts > 1:
                label = f"evaluating {len(first_settings)} of {number_of_prompts} prompts"
            records = (TextExample(s.text, s.pair, location=s.location) for s in samples)
            results = self.stream(self.task_of(levels), records, len(targets), label)
            if number == 0:
                results = self.observed(samples, results, self.prediction_row)
            # All prompts have the same texts, which are counted once if they are cut.
            with collect_cut_texts(warn=number == 0):
                for place, (added, labels) in enumerate(zip(results, targets, strict=True)):
                    prediction = self.prediction_of(added)
                    unanswered[number, place] = prediction is None
                    correct[number, place] = self.is_correct(prediction, labels)
        return correct, unanswered


def _prompt_rows(
    factors: Sequence[Factor],
    settings: Sequence[Sequence[int]],
    accuracy: "NDArray[np.float64]",
    drawn: "NDArray[np.float64]",
) -> list[dict[str, Any]]:
    """Return the accuracy of each setting, with the levels of the factors that vary."""
    rows = []
    for number, levels in enumerate(settings):
        row: dict[str, Any] = {}
        for factor, level in zip(factors, levels, strict=True):
            if len(factor.levels) > 1:
                row[factor.name] = factor.levels[level]
        low, high = interval(drawn[:, number])
        row.update(accuracy=float(accuracy[number]), low=low, high=high)
        rows.append(row)
    return rows


def _variation(
    factors: Sequence[Factor],
    settings: Sequence[Sequence[int]],
    accuracy: "NDArray[np.float64]",
    drawn: "NDArray[np.float64]",
) -> dict[str, Any]:
    """Return how much the accuracy depends on each factor that varies."""
    factor_levels = {}
    for number, factor in enumerate(factors):
        factor_levels[factor.name] = [levels[number] for levels in settings]
    variation = {}
    for factor in factors:
        if len(factor.levels) > 1:
            members = []
            for number in range(len(settings)):
                is_idle = False
                for name, idle_levels in factor.idle_at.items():
                    is_idle |= factor_levels[name][number] in idle_levels
                if not is_idle:
                    members.append(number)
            if not members:
                continue
            levels = [factor_levels[factor.name][number] for number in members]
            groups: list[int] = []
            if factor.within:
                groups = [factor_levels[factor.within][number] for number in members]
            variation[factor.name] = factor_variation(
                accuracy[members], drawn[:, members], levels, groups
            )
    return variation


def _condition_rows(
    factors: Sequence[Factor],
    settings: Sequence[Sequence[int]],
    accuracy: "NDArray[np.float64]",
    drawn: "NDArray[np.float64]",
    seed: int,
) -> list[dict[str, Any]]:
    """Return the mean and the range of each condition, and its difference from the first one.

    Conditions are combinations of the factors whose levels are no draws. There are no rows for a
    single condition, or if each has one prompt.
    """
    condition_numbers: dict[tuple[int, ...], int] = {}
    conditions = []
    blocks = []  # For each setting, the level of the draws of which others are part.
    for levels in settings:
        condition = []
        block = 0
        for factor, level in zip(factors, levels, strict=True):
            if not factor.is_drawn:
                condition.append(level)
            elif not factor.within:
                block = block * len(factor.levels) + level
        number = condition_numbers.setdefault(tuple(condition), len(condition_numbers))
        conditions.append(number)
        blocks.append(block)
    if len(condition_numbers) in (1, len(settings)):
        return []
    fixed_factors = [factor for factor in factors if not factor.is_drawn]
    summaries = condition_means(accuracy, drawn, conditions, blocks, seed)
    rows = []
    for levels, summary in zip(condition_numbers, summaries, strict=True):
        row: dict[str, Any] = {}
        for factor, level in zip(fixed_factors, levels, strict=True):
            if len(factor.levels) > 1:
                row[factor.name] = factor.levels[level]
        rows.append({**row, **summary})
    return rows


def several(values: Value | Sequence[Value]) -> list[Value]:
    """Return the values of an option that may be given once, or several times."""
    if isinstance(values, str | int | float):
        return [values]
    return list(values)
