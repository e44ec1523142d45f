"""Tables of texts, or pairs of texts, with a label: a class, several classes, or a number."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from zoo.data.readers.labelled import (
    Columns,
    Sample,
    label_name,
    label_number,
    read_samples,
    split_labels,
    warn_of_equal_numbers,
)
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.finetuning.labels import check_class_names, class_warnings, fit_classes, label_index
from zoo.finetuning.task import TaskContext, TaskData, TaskSplit
from zoo.io.numbers import parse_int
from zoo.overrides import override
from zoo.training.config.finetune import FineTuneConfig, TableConfig


class Label(ABC):
    """What the label of a text is, and how the model's outputs follow from it.

    Attributes:
        may_be_missing: whether a text may have no label.
    """

    may_be_missing: bool = False

    def names(self, sample: Sample, table: TableConfig) -> tuple[str, ...]:
        """Return the names of the classes of a sample; by default none."""
        return ()

    def check(self, sample: Sample, table: TableConfig) -> None:
        """Check a label without a model; raises ``RowError``."""
        check_class_names(sample, self.names(sample, table), table)

    def answer(self, sample: Sample, table: TableConfig) -> tuple[Any, ...]:
        """Return what samples with the same texts must have in common."""
        return self.names(sample, table)

    def fit(
        self, settings: FineTuneConfig, samples: Sequence[Sample], pretrained: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the classes in the order of the model's outputs; see ``TaskData.fit_labels``."""
        return ()

    def output_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the model's outputs."""
        return labels

    @abstractmethod
    def target(self, context: TaskContext, sample: Sample) -> Any:
        """Return the value in the tensor of labels; raises ``RowError``."""

    def warnings(
        self, context: TaskContext, train: Sequence[Sample], evaluation: Sequence[Sample]
    ) -> list[str]:
        """Return what users should know about the labels."""
        table = context.settings.data
        return class_warnings(
            context.labels, train, evaluation, lambda sample: self.names(sample, table)
        )


@dataclass(frozen=True)
class OneClass(Label):
    """A class.

    Attributes:
        in_order: whether the classes have an order: that of their values if they are integers, or
            else the order of ``data.labels``.
    """

    in_order: bool = False

    @override
    def names(self, sample: Sample, table: TableConfig) -> tuple[str, ...]:
        return (label_name(sample.label, sample.location),)

    @override
    def fit(
        self, settings: FineTuneConfig, samples: Sequence[Sample], pretrained: tuple[str, ...]
    ) -> tuple[str, ...]:
        names = partial(self.names, table=settings.data)
        labels = fit_classes(settings, samples, names, pretrained, fewest=2)
        if not self.in_order or pretrained or settings.data.labels is not None:
            return labels
        words = [label for label in labels if parse_int(label) is None]
        if words:
            raise UsageError(
                f"the label {words[0]!r} is not a number, and the order of the labels is unknown",
                f"give it with --set data.labels=[{','.join(labels)}], the lowest first",
            )
        return labels

    @override
    def target(self, context: TaskContext, sample: Sample) -> Any:
        (name,) = self.names(sample, context.settings.data)
        return label_index(name, context.label_indices, sample.location)


class SeveralClasses(Label):
    """Any number of classes: a list (JSON, Parquet), or text with a separator."""

    may_be_missing = True

    @override
    def names(self, sample: Sample, table: TableConfig) -> tuple[str, ...]:
        return split_labels(sample, table.label_separator)

    @override
    def fit(
        self, settings: FineTuneConfig, samples: Sequence[Sample], pretrained: tuple[str, ...]
    ) -> tuple[str, ...]:
        names = partial(self.names, table=settings.data)
        return fit_classes(settings, samples, names, pretrained, fewest=1)

    @override
    def target(self, context: TaskContext, sample: Sample) -> Any:
        """Return 1 for each label of the sample and 0 for the others, (labels,), float32."""
        target = np.zeros(len(context.labels), np.float32)
        for name in self.names(sample, context.settings.data):
            target[label_index(name, context.label_indices, sample.location)] = 1
        return target

    @override
    def warnings(
        self, context: TaskContext, train: Sequence[Sample], evaluation: Sequence[Sample]
    ) -> list[str]:
        names = partial(self.names, table=context.settings.data)
        return class_warnings(context.labels, train, evaluation, names, several=True)


class Number(Label):
    """A number."""

    @override
    def check(self, sample: Sample, table: TableConfig) -> None:
        label_number(sample.label, sample.location)

    @override
    def answer(self, sample: Sample, table: TableConfig) -> tuple[Any, ...]:
        return (label_number(sample.label, sample.location),)

    @override
    def output_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the name of the one output, as in transformers."""
        return ("LABEL_0",)

    @override
    def target(self, context: TaskContext, sample: Sample) -> Any:
        return np.float32(label_number(sample.label, sample.location))

    @override
    def warnings(
        self, context: TaskContext, train: Sequence[Sample], evaluation: Sequence[Sample]
    ) -> list[str]:
        train_numbers = [self.target(context, sample) for sample in train]
        eval_numbers = [self.target(context, sample) for sample in evaluation]
        return [
            *warn_of_equal_numbers(train_numbers, training=True),
            *warn_of_equal_numbers(eval_numbers),
        ]


@dataclass(frozen=True)
class LabelledTexts(TaskData[Sample]):
    """Texts, or pairs of texts, with labels.

    Attributes:
        label: what a label is.
    """

    label: Label

    @override
    def read(self, paths: Sequence[str], table: TableConfig, problems: RowProblems) -> list[Sample]:
        columns = Columns(table.text, table.label_column, table.pair)
        return read_samples(paths, columns, problems, unlabelled=self.label.may_be_missing)

    @override
    def check(self, sample: Sample, table: TableConfig) -> Sample:
        self.label.check(sample, table)
        return sample

    @override
    def texts(self, sample: Sample) -> list[str]:
        return sample.texts

    @override
    def review(self, sample: Sample, table: TableConfig) -> Reviewed:
        answer = self.label.answer(sample, table)
        return Reviewed(sample.texts, answer, self.label.names(sample, table))

    @override
    def label_names(self, sample: Sample, table: TableConfig) -> tuple[str, ...]:
        return self.label.names(sample, table)

    @override
    def fit_labels(
        self, settings: FineTuneConfig, samples: Sequence[Sample], pretrained: tuple[str, ...]
    ) -> tuple[str, ...]:
        return self.label.fit(settings, samples, pretrained)

    @override
    def output_names(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        return self.label.output_names(labels)

    @override
    def target(self, context: TaskContext, sample: Sample) -> Any:
        return self.label.target(context, sample)

    @override
    def warnings(
        self, context: TaskContext, train: TaskSplit[Sample], evaluation: TaskSplit[Sample]
    ) -> list[str]:
        return self.label.warnings(context, train.samples, evaluation.samples)
