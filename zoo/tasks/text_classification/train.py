"""Training of classifiers and regressors of texts or pairs of texts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch.nn import functional as F

from zoo.data.readers.labelled import Columns, label_number, read_samples, split_labels
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.evaluation.data_warnings import warn_of_equal_numbers
from zoo.families.config import Problem
from zoo.finetuning.base import LABELS, report_texts
from zoo.finetuning.labels import ClassTask, OneClassTask, class_loss, label_index
from zoo.finetuning.rows import TokenizedRows
from zoo.finetuning.text_inputs import TextTask
from zoo.metrics.classification import multi_label_metrics
from zoo.metrics.ranks import regression_metrics
from zoo.objectives.base import LossOutput, Outputs
from zoo.overrides import override
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from zoo.evaluation.base import Prediction


class TextClassification(OneClassTask, TextTask):
    """Cross-entropy of the label."""

    # With class weights, it is the weighted mean, like ``torch.nn.CrossEntropyLoss(weight=...)``.

    name: ClassVar[str] = "text-classification"
    head: ClassVar[str] = "sequence-classification"

    @override
    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        # the first call, on the training data, fixes ``balanced`` class weights
        rows = super().rows(samples, tokenizer)
        self.fix_weights(rows.values[LABELS])
        return replace(rows, counts={**rows.counts, self.name: self.weigh(rows.values[LABELS])})

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        logits = outputs.logits[self.name]
        return class_loss(self.name, logits, batch[LABELS], self.weights_like(logits))


class Regression(TextTask):
    """Squared error of one output."""

    name: ClassVar[str] = "regression"
    head: ClassVar[str] = "sequence-classification"
    problem: ClassVar[Problem | None] = "regression"
    default_metric: ClassVar[str] = "pearson"

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        return ("pearson", "spearman", "mse")

    @classmethod
    @override
    def output_names(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the name of the one output, as in transformers."""
        return ("LABEL_0",)

    @classmethod
    @override
    def check(cls, sample: Any, data: TableConfig) -> Any:
        label_number(sample.label, sample.location)
        return sample

    @classmethod
    @override
    def review(cls, sample: Any, data: TableConfig) -> Reviewed:
        return Reviewed(cls.texts(sample), (label_number(sample.label, sample.location),))

    @override
    def target(self, sample: Any) -> Any:
        return np.float32(label_number(sample.label, sample.location))

    @override
    def data_warnings(
        self, train: Sequence[Any], evaluation: Sequence[Any], rows: TokenizedRows
    ) -> list[str]:
        numbers = ([self.target(sample) for sample in part] for part in (train, evaluation))
        return [
            *super().data_warnings(train, evaluation, rows),
            *warn_of_equal_numbers(next(numbers), training=True),
            *warn_of_equal_numbers(next(numbers)),
        ]

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        values, labels = outputs.logits[self.name].squeeze(-1), batch[LABELS]
        return LossOutput(
            {self.name: F.mse_loss(values, labels, reduction="sum")},
            predictions={"prediction": values.detach(), "label": labels},
        )

    @override
    def prediction(self, sample: Any, values: "Mapping[str, Any]") -> "Prediction | None":
        label, prediction = float(values["label"]), float(values["prediction"])
        return {
            **report_texts(sample),
            "label": label,
            "prediction": prediction,
            "error": prediction - label,
        }

    @override
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        return regression_metrics(predictions["prediction"], predictions["label"])


class MultiLabel(ClassTask, TextTask):
    """Binary cross-entropy of each label, over all labels of all samples."""

    # The labels of a sample are a list (JSON, Parquet), or text with a separator.

    name: ClassVar[str] = "multi-label"
    head: ClassVar[str] = "sequence-classification"
    problem: ClassVar[Problem | None] = "multi_label_classification"
    default_metric: ClassVar[str] = "f1_micro"

    @property
    @override
    def logits_per_count(self) -> float:  # type: ignore[override]
        # the loss counts each label of a row
        return 1 / len(self.config.labels)

    @property
    @override
    def metric_names(self) -> tuple[str, ...]:
        return ("f1_micro", "f1_macro", "exact_match")

    @classmethod
    @override
    def read(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        # a sample may have no label
        columns = Columns(data.text, data.label_column, data.pair)
        return read_samples(paths, columns, problems, unlabelled=True)

    @classmethod
    @override
    def label_names(cls, sample: Any, data: TableConfig) -> tuple[str, ...]:
        return split_labels(sample, data.label_separator)

    @override
    def target(self, sample: Any) -> Any:
        """Return 1 for each label of the sample and 0 for the others, (labels,), float32."""
        target = np.zeros(len(self.labels), np.float32)
        for name in self.label_names(sample, self.run.data):
            target[label_index(name, self.indices, sample.location)] = 1
        return target

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        logits, labels = outputs.logits[self.name], batch[LABELS]
        loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        # of exactly these labels: the probabilities are independent
        probability = logits.detach().abs().sigmoid().prod(-1)
        predictions = {
            "prediction": logits.detach() >= 0,
            "label": labels > 0,
            "probability": probability,
        }
        return LossOutput({self.name: loss}, predictions=predictions)

    @override
    def prediction(self, sample: Any, values: "Mapping[str, Any]") -> "Prediction | None":
        label, prediction = (
            [name for name, on in zip(self.labels, values[key].tolist(), strict=True) if on]
            for key in ("label", "prediction")
        )
        return {
            **report_texts(sample),
            "label": label,
            "prediction": prediction,
            "probability": float(values["probability"]),
            "correct": label == prediction,
        }

    @override
    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        return multi_label_metrics(predictions["prediction"], predictions["label"])
