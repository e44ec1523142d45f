"""Classes as labels: their order, their indices, and their weights in the loss."""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch.nn import functional as F

from zoo.data.readers.labelled import describe_labels, label_name, match_label, sort_labels
from zoo.data.readers.problems import RowError
from zoo.data.readers.review import Reviewed
from zoo.data.readers.text_io import open_last_line
from zoo.errors import UsageError
from zoo.evaluation.data_warnings import warn_of_absent_labels
from zoo.families.config import Problem
from zoo.finetuning.base import LABELS, FineTuning, report_texts
from zoo.finetuning.heads import HEAD, unnamed_labels
from zoo.finetuning.rows import TokenizedRows
from zoo.metrics.classification import ClassCounts, classification_metrics
from zoo.objectives.base import Batch, LossOutput
from zoo.objectives.losses.cross_entropy import IGNORED
from zoo.overrides import override
from zoo.training.config.finetune import FineTuneConfig, TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from zoo.evaluation.base import Prediction

SHOWN = 3  # labels that are named in warnings


class ClassTask(FineTuning):
    """Base class of tasks whose labels are classes, each with an output of the model."""

    fewest_labels: ClassVar[int] = 1  # the data needs at least this number of labels
    weights: tuple[float, ...] | None = None  # of the labels in the loss; ``None`` for equal ones

    @classmethod
    @abstractmethod
    @override
    def label_names(cls, sample: Any, data: TableConfig) -> tuple[str, ...]:
        """Return the names of the classes of a sample."""

    @classmethod
    @override
    def check(cls, sample: Any, data: TableConfig) -> Any:
        known = data.labels
        for number, name in enumerate(cls.label_names(sample, data)):
            if known is not None and name not in known:
                raise RowError(
                    f"{cls.label_location(sample, number)}: the label {name!r} is not in "
                    f"data.labels, {', '.join(known[:8])}"
                )
        return sample

    @classmethod
    @override
    def review(cls, sample: Any, data: TableConfig) -> Reviewed:
        names = cls.label_names(sample, data)
        return Reviewed(cls.texts(sample), names, names)

    @classmethod
    @override
    def fix_labels(
        cls, run: FineTuneConfig, samples: Sequence[Any], known: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        present = {name for sample in samples for name in cls.label_names(sample, run.data)}
        if known:
            return match_labels(known, present.union(run.data.labels or ()))
        return order_labels(present, run.data.labels, cls.fewest_labels)

    @classmethod
    def label_location(cls, sample: Any, number: int) -> str:
        """Return file and line of a label of a sample, counted from 0, for messages."""
        location: str = sample.location
        return location

    @property
    @override
    def labels(self) -> tuple[str, ...]:
        return self.config.labels

    @cached_property
    def indices(self) -> Mapping[str, int]:
        """Label -> index of the model's output."""
        return {name: number for number, name in enumerate(self.labels)}

    def fix_weights(self, indices: "NDArray[np.integer[Any]]") -> None:
        """Compute the weights of the labels from ``indices`` of the training data, (n,)."""
        # Only the first call has an effect.
        if self.weights is None and self.run.class_weights is not None:
            counts = np.bincount(indices, minlength=len(self.labels))
            self.weights = class_weights(self.run.class_weights, self.labels, counts)

    @override
    def data_warnings(
        self, train: Sequence[Any], evaluation: Sequence[Any], rows: TokenizedRows
    ) -> list[str]:
        # a label with one sample may be the first part of a longer one, in a truncated file
        count = Counter(name for s in train for name in self.label_names(s, self.run.data))
        single = [
            (name, self.label_location(sample, number))
            for sample in train
            for number, name in enumerate(self.label_names(sample, self.run.data))
            if count[name] == 1
        ]
        missing = []
        if unseen := [name for name in self.labels if not count[name]]:
            shown = describe_labels(unseen)
            missing = [f"no training sample has these labels of the pretrained model: {shown}"]
        absent = []
        if self.default_metric != "f1":  # of entities, which does not depend on labels
            known = [name for name in self.labels if count[name] > 1]
            present = {name for s in evaluation for name in self.label_names(s, self.run.data)}
            several = self.problem == "multi_label_classification"
            absent = warn_of_absent_labels(known, present, several=several)
        return [
            *super().data_warnings(train, evaluation, rows),
            *missing,
            *warn_of_single_samples(single),
            *absent,
        ]

    def weigh(self, indices: "NDArray[np.integer[Any]]") -> "NDArray[Any]":
        """Return how much each label adds to the count of the loss: its weight, 1 or 0."""
        counted: NDArray[Any] = indices != IGNORED
        if self.weights is None:
            return counted.astype(np.int64)
        weights: NDArray[Any] = np.array(self.weights)[np.where(counted, indices, 0)] * counted
        return weights

    @override
    def count_logits(self, batch: Batch, term: str) -> int:
        # class weights do not count
        if term != self.name or self.weights is None:
            return super().count_logits(batch, term)
        return int((batch.tensors[LABELS] != IGNORED).sum())

    def weights_like(self, logits: "Tensor") -> "Tensor | None":
        """Return the weights in the dtype and on the device of logits, (labels,), if any."""
        return None if self.weights is None else logits.new_tensor(self.weights)


class OneClassTask(ClassTask):
    """Base class of tasks in which each text, or pair of texts, has one class."""

    problem: ClassVar[Problem | None] = "single_label_classification"
    default_metric: ClassVar[str] = "accuracy"
    fewest_labels: ClassVar[int] = 2

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        f1 = "f1" if len(self.labels) == 2 else "f1_macro"
        return ("accuracy", f1, "matthews_correlation")

    @classmethod
    @override
    def label_names(cls, sample: Any, data: TableConfig) -> tuple[str, ...]:
        return (label_name(sample.label, sample.location),)

    @override
    def target(self, sample: Any) -> Any:
        (name,) = self.label_names(sample, self.run.data)
        return label_index(name, self.indices, sample.location)

    @override
    def prediction(self, sample: Any, values: "Mapping[str, Any]") -> "Prediction | None":
        label, prediction = int(values["label"]), int(values["prediction"])
        return {
            **report_texts(sample),
            "label": self.labels[label],
            "prediction": self.labels[prediction],
            "probability": float(values["probability"]),
            "correct": label == prediction,
        }

    @override
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        counts = ClassCounts.of(predictions["label"], predictions["prediction"], len(self.labels))
        return {name: float(value) for name, value in classification_metrics(counts).items()}


def class_loss(
    name: str, logits: "Tensor", labels: "Tensor", weight: "Tensor | None" = None
) -> LossOutput:
    """Return the summed cross-entropy of classes, and the most probable class of each row."""
    loss = F.cross_entropy(logits, labels, weight=weight, reduction="sum")
    probability, prediction = logits.detach().softmax(-1).max(-1)
    return LossOutput(
        {name: loss},
        predictions={"prediction": prediction, "label": labels, "probability": probability},
    )


def match_labels(known: tuple[str, ...], present: Collection[str]) -> tuple[str, ...]:
    """Return the labels of a pretrained head in its order; the data may lack some of them."""
    # If the head's outputs have no names, numbers in the data are their indices.
    numbered = tuple(map(str, range(len(known))))
    is_unnamed = known == unnamed_labels(len(known))
    present = {match_label(name, numbered if is_unnamed else known) for name in present}
    if is_unnamed and not present.difference(numbered):
        return numbered
    if lacking := sort_labels(present.difference(known)):
        raise UsageError(
            f"the pretrained model has a head for {describe_labels(known, *lacking)}, but not for "
            f"these labels of the data: {describe_labels(lacking)}",
            f"rename them in the data, or leave these samples out; --set init_from.new_modules="
            f"[{HEAD}] starts with a new head",
        )
    return known


def label_order(known: Sequence[str], labels: Sequence[str]) -> tuple[int, ...] | None:
    """Return the index of each label in another model's outputs; ``None`` if its labels differ."""
    # If the outputs have no names, numbers are their indices.
    numbered = tuple(map(str, range(len(known))))
    if tuple(known) == unnamed_labels(len(known)) and set(labels) == set(numbered):
        known = numbered
    if sorted(known) != sorted(labels):
        return None
    indices = {name: index for index, name in enumerate(known)}
    return tuple(indices[name] for name in labels)


def order_labels(
    present: Collection[str], requested: Sequence[str] | None, fewest: int = 1
) -> tuple[str, ...]:
    """Return the labels in the order of the model's outputs: as requested, or sorted."""
    labels = tuple(requested or ()) or sort_labels(present)
    if repeated := [name for name, count in Counter(labels).items() if count > 1]:
        raise UsageError(f"data.labels has {repeated[0]!r} twice", "name each label once")
    empty = [name for name in labels if name not in present]
    if empty:
        raise UsageError(
            f"no sample of the training data has the label {empty[0]!r}", "leave it out"
        )
    lacking = sort_labels(set(present).difference(labels))
    if lacking:
        raise UsageError(
            f"samples of the training data have the label {lacking[0]!r}, which data.labels lacks",
            "add it there, or leave these samples out",
        )
    if not labels:
        raise UsageError("no sample of the training data has a label", "give data with labels")
    if len(labels) < fewest:
        raise UsageError(
            f"all samples of the training data have the label {labels[0]!r}",
            "give data with two labels or more",
        )
    return labels


def warn_of_single_samples(labels: Sequence[tuple[str, str]]) -> list[str]:
    """Return warnings about labels that have a single training sample."""
    files = {place.rpartition(":")[0] for _, place in labels}
    ends = {f"{file}:{open_last_line(Path(file))}" for file in files if Path(file).is_file()}
    cut_first = sorted(labels, key=lambda label: label[1] not in ends)
    lines = [
        f"the label {name!r} has one training sample, {place}"
        + (", the last line, which has no line feed: is the file complete?" * (place in ends))
        for name, place in cut_first[:SHOWN]
    ]
    rest = len(labels) - SHOWN
    return [*lines, *([f"{rest:,} more labels have one training sample"] if rest > 0 else [])]


def label_index(name: str, indices: Mapping[str, int], location: str) -> int:
    """Return the index of a label."""
    name = match_label(name, indices)
    if name not in indices:
        raise RowError(
            f"{location}: the label {name!r} is not in the training data",
            f"it has {describe_labels(list(indices), name)}",
        )
    return indices[name]


def class_weights(
    setting: str | Mapping[str, float], labels: Sequence[str], counts: "NDArray[np.integer[Any]]"
) -> tuple[float, ...]:
    """Return the weight of each label: ``balanced`` by their ``counts``, (labels,), or as given."""
    if isinstance(setting, str):
        # as in scikit-learn; a label without samples, of a pretrained head, keeps the weight 1
        mean = counts.sum() / np.count_nonzero(counts)
        return tuple(float(mean / count) if count else 1.0 for count in counts)
    if set(setting) != set(labels):
        raise UsageError(
            f"class_weights has {', '.join(setting)}, and the labels are {', '.join(labels)}",
            "give each label a weight",
        )
    weights = setting.values()
    if not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
        raise UsageError(
            f"class_weights has the weights {', '.join(map(str, weights))}",
            "give finite weights of 0 or more, one of them above 0",
        )
    return tuple(setting[label] for label in labels)
