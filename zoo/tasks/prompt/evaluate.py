"""Accuracy of prompts, and how much it depends on their parts."""

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import Columns, Sample, iter_samples, label_name, sort_labels
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import review_class
from zoo.errors import UsageError
from zoo.evaluation.base import Evaluation, Prediction, Result
from zoo.inference.processing.records import TextExample
from zoo.inference.task_warnings import collect_cut_texts
from zoo.metrics.intervals import interval
from zoo.metrics.variation import bootstrap_rows, factor_variation
from zoo.overrides import override
from zoo.tasks.prompt.predict import Prompting
from zoo.tasks.prompt.shots import Shot, read_shots, select_shots
from zoo.tasks.prompt.template import PromptTemplate, read_label_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.inference.task import Task

MAX_SETTINGS = 10_000  # combinations of factors


@dataclass(frozen=True)
class Factor:
    """A part of a prompt that is varied: its name, and a description of each level."""

    name: str
    levels: tuple[str | int, ...]
    # Name of a factor: the levels of this one mean something else at each of its levels.
    within: str = ""


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

    def check_sample(self, sample: Sample) -> Sample:
        """Return a sample whose label can be predicted."""
        name = label_name(sample.label, sample.location)
        for words in self.words:
            if name not in words:
                raise RowError(
                    f"{sample.location} has the label {name!r}, which has no word",
                    f"label words are for {', '.join(words)}",
                )
        return sample

    def prompt_factors(self, labels: Sequence[str]) -> list[Factor]:
        """Return the templates and the words of the labels, which are the labels by default."""
        if not self.words:
            self.words = [{label: label for label in labels}]
        descriptions = []
        for words in self.words:
            assignments = [f"{label}={word}" for label, word in words.items()]
            descriptions.append(",".join(assignments))
        return [
            Factor("template", tuple(self.templates)),
            Factor("label words", tuple(descriptions)),
        ]

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        import numpy as np

        def read(problems: RowProblems) -> Iterable[Sample]:
            return problems.checked(iter_samples(files, self.columns, problems), self.check_sample)

        samples = self.samples(read, review_class)
        labels = [label_name(sample.label, sample.location) for sample in samples]
        factors = self.factors(sort_labels(labels))
        level_numbers = [range(len(factor.levels)) for factor in factors]
        settings = list(itertools.product(*level_numbers))
        if len(settings) > MAX_SETTINGS:
            raise UsageError(
                f"there are {len(settings):,} combinations of templates, words, examples and "
                "orders",
                f"give at most {MAX_SETTINGS:,}",
            )
        correct = np.empty((len(settings), len(labels)), bool)
        for number, levels in enumerate(settings):
            label = "evaluating"
            if len(settings) > 1:
                label = f"evaluating {number + 1} of {len(settings)} prompts"
            records = (TextExample(s.text, s.pair, location=s.location) for s in samples)
            results = self.stream(self.task_of(levels), records, len(labels), label)
            if number == 0:
                results = self.observed(samples, results, partial(_row, self.prediction_of))
            predicted = map(self.prediction_of, results)
            # All prompts have the same texts, which are counted once if they are cut.
            with collect_cut_texts(warn=number == 0):
                correct[number] = [p == label for p, label in zip(predicted, labels, strict=True)]
        accuracy = correct.mean(1)
        drawn = bootstrap_rows(correct, self.seed)
        metrics = {"accuracy": float(accuracy.mean())}
        details: dict[str, Any] = {"intervals": {"accuracy": interval(drawn.mean(1))}}
        if len(settings) > 1:
            metrics["lowest"] = float(accuracy.min())
            metrics["highest"] = float(accuracy.max())
            details["variation"] = _variation(factors, settings, accuracy, drawn)
            details["prompts"] = _prompt_rows(factors, settings, accuracy, drawn)
        metrics["samples"] = len(labels)
        return Result(metrics, details)


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
            groups = factor_levels.get(factor.within, ())
            levels = factor_levels[factor.name]
            variation[factor.name] = factor_variation(accuracy, drawn, levels, groups)
    return variation


class PromptEvaluation(VariedEvaluation):
    """Accuracy of the labels of a prompt; see ``Prompting``.

    Templates, label words, examples and their order are crossed. Zhao et al. 2021
    (arXiv:2102.09690, section 3) and Lu et al. 2022 (arXiv:2104.08786) show how much each matters.
    """

    name: ClassVar[str] = "prompt"

    def __init__(
        self,
        *args: Any,
        template: str | Sequence[str] = (),
        label_words: str | Sequence[str] = (),
        shots: int | None = None,
        shots_from: str | None = None,
        seeds: int = 1,
        orders: int = 1,
        max_seq_len: int | None = None,
        **options: Any,
    ) -> None:
        self.prompt_options = {}
        for name in ("scoring", "separator", "calibrate", "content_free"):
            if name in options:
                self.prompt_options[name] = options.pop(name)
        super().__init__(*args, **options)
        self.templates = [PromptTemplate.read(value).source for value in several(template)]
        if not self.templates:
            raise UsageError("there is no template", "give --template FILE|TEXT")
        self.words = [read_label_words(value) for value in several(label_words)]
        self.max_tokens = max_seq_len
        self.examples = self._examples(shots, shots_from, seeds, orders)
        self.labels: Sequence[str] = ()

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        Prompting.require_head(checkpoint)

    def _examples(
        self, shots: int | None, source: str | None, seeds: int, orders: int
    ) -> list[list[Sequence[Shot]]]:
        import numpy as np

        if shots is None or source is None:
            if shots is not None or source is not None:
                raise UsageError("--shots and --shots-from belong together", "give both or neither")
            if max(seeds, orders) > 1:
                raise UsageError("--seeds and --orders are for examples", "give --shots N")
            return [[()]]
        rows = read_shots(source, self.columns)
        examples: list[list[Sequence[Shot]]] = []
        for number in range(seeds):
            selected_shots = select_shots(rows, shots, self.seed + number, source)
            rng = np.random.default_rng(self.seed + number)
            ordered_shots: list[Sequence[Shot]] = [selected_shots]
            for _ in range(orders - 1):
                order = rng.permutation(len(selected_shots))
                ordered_shots.append([selected_shots[k] for k in order])
            examples.append(ordered_shots)
        return examples

    @override
    def factors(self, labels: Sequence[str]) -> list[Factor]:
        return [
            *self.prompt_factors(labels),
            Factor("seed", tuple(range(self.seed, self.seed + len(self.examples)))),
            Factor("order", tuple(range(len(self.examples[0]))), within="seed"),
        ]

    @override
    def task_of(self, levels: Sequence[int]) -> "Task":
        template, words, seed, order = levels
        return Prompting(
            self.checkpoint,
            self.session,
            template=self.templates[template],
            label_words=self.words[words],
            examples=self.examples[seed][order],
            seed=self.seed + seed,
            max_tokens=self.max_tokens,
            **self.prompt_options,
        )

    @override
    def prediction_of(self, added: Mapping[str, Any]) -> str | None:
        label: str | None = added["label"]
        return label


def several(values: str | Sequence[str]) -> list[str]:
    """Return the values of an option that may be given once, or several times."""
    return [values] if isinstance(values, str) else list(values)


def _row(prediction_of: Any, sample: Sample, added: Mapping[str, Any]) -> Prediction:
    label = label_name(sample.label, sample.location)
    prediction = prediction_of(added)
    scores = added.get("scores")
    # A list of scores is in the order of the labels, the best first.
    best_score = scores[0] if isinstance(scores, list) else None
    row = {"location": sample.location, "text": sample.text}
    if sample.pair is not None:
        row["pair"] = sample.pair
    return {
        **row,
        "label": label,
        "prediction": prediction,
        "probability": added.get("score", best_score),
        "correct": label == prediction,
    }
