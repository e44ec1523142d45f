"""Accuracy of prompts, and how much it depends on their parts."""

import itertools
from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from zoo.data.readers.labelled import Columns, Sample, iter_samples, label_name, sort_labels
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import review_class
from zoo.errors import UsageError
from zoo.evaluation.base import Evaluation, Prediction, Result
from zoo.inference.processing.records import TextExample
from zoo.inference.task_warnings import collect_cut_texts
from zoo.metrics.intervals import interval
from zoo.metrics.variation import bootstrap_rows, condition_means, factor_variation
from zoo.overrides import override
from zoo.tasks.prompt.predict import Prompting
from zoo.tasks.prompt.shot_labels import ShotLabels, read_shot_labels
from zoo.tasks.prompt.shots import Shot, draw_orders, read_orders, read_shots, select_shots
from zoo.tasks.prompt.template import PromptTemplate, read_label_words
from zoo.tasks.prompt.template_file import NamedTemplate, read_named_templates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.inference.task import Task

Value = TypeVar("Value", str, float)

MAX_SETTINGS = 10_000  # combinations of factors


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
        first_settings: dict[Hashable, int] = {}  # Key -> the setting that is computed.
        keys = [self.prompt_key(levels) for levels in settings]
        number_of_prompts = len(set(keys))
        for number, (levels, key) in enumerate(zip(settings, keys, strict=True)):
            if key in first_settings:
                correct[number] = correct[first_settings[key]]
                continue
            first_settings[key] = number
            label = "evaluating"
            if number_of_prompts > 1:
                label = f"evaluating {len(first_settings)} of {number_of_prompts} prompts"
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
            conditions = _condition_rows(factors, settings, accuracy, drawn, self.seed)
            if conditions:
                details["conditions"] = conditions
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
        templates: str | Path | None = None,
        label_words: str | Sequence[str] = (),
        shots: int | None = None,
        shots_from: str | None = None,
        seeds: int = 1,
        orders: str | int = 1,
        shot_labels: str | Sequence[str] = (),
        wrong_labels: float | Sequence[float] = (),
        max_seq_len: int | None = None,
        **options: Any,
    ) -> None:
        self.prompt_options = {}
        for name in ("scoring", "separator", "calibrate", "content_free"):
            if name in options:
                self.prompt_options[name] = options.pop(name)
        super().__init__(*args, **options)
        self.named_templates: list[NamedTemplate] = []
        if templates is not None:
            if template:
                raise UsageError("--template and --templates exclude each other", "leave one out")
            self.named_templates = read_named_templates(Path(templates))
            self.templates = [named.template.source for named in self.named_templates]
        else:
            self.templates = [PromptTemplate.read(value).source for value in several(template)]
        if not self.templates:
            raise UsageError("there is no template", "give --template FILE|TEXT")
        self.words = [read_label_words(value) for value in several(label_words)]
        # The words of each template, if they are those of a file.
        self.template_words: list[Mapping[str, str]] = []
        for named in self.named_templates:
            if named.words is not None:
                self.template_words.append(named.words)
        if self.words and self.template_words:
            raise UsageError(
                f"{templates} has label words, and --label-words too", "leave out --label-words"
            )
        self.max_tokens = max_seq_len
        self.shot_labels = read_shot_labels(several(shot_labels), several(wrong_labels), shots)
        self.selections, self.orders = self._examples(shots, shots_from, seeds, orders)
        self._shot_texts: set[tuple[str, str | None]] = set()
        for selection in self.selections:
            self._shot_texts.update((shot.text, shot.pair) for shot in selection)
        # Samples whose text is also an example, in their order: a set that keeps its order.
        self._shown_samples: dict[str, None] = {}
        self.labels: Sequence[str] = ()

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        Prompting.require_head(checkpoint)

    def _examples(
        self, shots: int | None, source: str | None, seeds: int, orders: str | int
    ) -> tuple[list[list[Shot]], list[list[tuple[int, ...]]]]:
        """Return the selections of examples, and the orders of each."""
        number_of_orders = read_orders(orders)
        if shots is None or source is None:
            if shots is not None or source is not None:
                raise UsageError("--shots and --shots-from belong together", "give both or neither")
            if seeds > 1 or number_of_orders != 1:
                raise UsageError("--seeds and --orders are for examples", "give --shots N")
            return [[]], [[()]]
        rows = read_shots(source, self.columns)
        selections = []
        selection_orders = []
        for number in range(seeds):
            seed = self.seed + number
            selections.append(select_shots(rows, shots, seed, source))
            selection_orders.append(draw_orders(shots, number_of_orders, seed, MAX_SETTINGS))
        return selections, selection_orders

    def examples(
        self, words: Mapping[str, str], labels: ShotLabels, seed: int, order: int
    ) -> list[Shot]:
        """Return the examples of a prompt in their order, with the labels that they have there."""
        shots = labels.relabel(self.selections[seed], words, self.seed + seed)
        if not shots:
            return []
        return [shots[number] for number in self.orders[seed][order]]

    @override
    def label_words(self) -> Sequence[Mapping[str, str]]:
        return self.template_words or self.words

    def words_of(self, template: int, words: int) -> Mapping[str, str]:
        """Return label -> word for a template, and the number of a choice of words."""
        if self.template_words:
            return self.template_words[template]
        return self.words[words]

    @override
    def prompt_factors(self, labels: Sequence[str]) -> list[Factor]:
        if self.template_words:
            factors = [Factor("template", ()), Factor("label words", ("of the file",))]
        else:
            factors = super().prompt_factors(labels)
        if self.named_templates:
            names = tuple(named.name for named in self.named_templates)
            factors[0] = Factor("template", names)
        return factors

    @override
    def check_sample(self, sample: Sample) -> Sample:
        if (sample.text, sample.pair) in self._shot_texts:
            self._shown_samples[sample.location] = None
        return super().check_sample(sample)

    def warn_of_shown_samples(self) -> None:
        """Warn of samples that are also examples, which show their labels."""
        if self._shown_samples:
            location = next(iter(self._shown_samples))
            self.warn(
                [
                    f"examples and samples have {len(self._shown_samples):,} texts in common, such "
                    f"as {location}: its label can be copied from the example"
                ]
            )

    @override
    def factors(self, labels: Sequence[str]) -> list[Factor]:
        self.warn_of_shown_samples()
        without_examples = []
        for number, shot_labels in enumerate(self.shot_labels):
            if shot_labels.source == "none":
                without_examples.append(number)
        idle_at = {"shot labels": without_examples}
        return [
            *self.prompt_factors(labels),
            Factor("shot labels", tuple(labels.name for labels in self.shot_labels)),
            Factor(
                "seed",
                tuple(range(self.seed, self.seed + len(self.selections))),
                is_drawn=True,
                idle_at=idle_at,
            ),
            Factor(
                "order",
                tuple(range(len(self.orders[0]))),
                within="seed",
                is_drawn=True,
                idle_at=idle_at,
            ),
        ]

    @override
    def prompt_key(self, levels: Sequence[int]) -> Hashable:
        template, words, shot_labels, seed, order = levels
        label_words = self.words_of(template, words)
        shots = self.examples(label_words, self.shot_labels[shot_labels], seed, order)
        return template, words, tuple((shot.text, shot.pair, shot.label) for shot in shots)

    @override
    def task_of(self, levels: Sequence[int]) -> "Task":
        template, words, shot_labels, seed, order = levels
        label_words = self.words_of(template, words)
        return Prompting(
            self.checkpoint,
            self.session,
            template=self.templates[template],
            label_words=label_words,
            examples=self.examples(label_words, self.shot_labels[shot_labels], seed, order),
            seed=self.seed + seed,
            max_tokens=self.max_tokens,
            **self.prompt_options,
        )

    @override
    def prediction_of(self, added: Mapping[str, Any]) -> str | None:
        label: str | None = added["label"]
        return label


def several(values: Value | Sequence[Value]) -> list[Value]:
    """Return the values of an option that may be given once, or several times."""
    if isinstance(values, str | int | float):
        return [values]
    return list(values)


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
