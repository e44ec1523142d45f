"""Text classification: one label of a text or a pair of texts."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch.nn import functional as F

from zoo.data.readers.labelled import label_name
from zoo.errors import UsageError
from zoo.evaluate.metrics import classification_metrics, confusion_matrix
from zoo.families.config import Problem
from zoo.finetune.base import LABELS, require_known_label
from zoo.finetune.rows import TokenizedRows
from zoo.finetune.tasks.text_inputs import TextTask
from zoo.objectives.base import LossOutput, Outputs
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class TextClassification(TextTask):
    """Cross-entropy of the label.

    With class weights, each sample's cross-entropy is multiplied by the weight of its label, and
    the sum is divided by the number of samples.
    """

    name: ClassVar[str] = "text-classification"
    head: ClassVar[str] = "sequence-classification"
    problem: ClassVar[Problem | None] = "single_label_classification"
    default_metric: ClassVar[str] = "accuracy"
    weights: tuple[float, ...] | None = None

    @property
    def metric_names(self) -> tuple[str, ...]:
        """See ``FineTuning``."""
        return ("accuracy", self._f1, "matthews_correlation")

    @property
    def _f1(self) -> str:
        return "f1" if len(self.config.labels) == 2 else "f1_macro"

    @classmethod
    def label_names(cls, sample: Any, data: TableConfig) -> tuple[str, ...]:
        """See ``FineTuning``."""
        return (label_name(sample.label, sample.location),)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.config.labels)}

    def target(self, sample: Any) -> Any:
        """Return the index of the label."""
        (name,) = self.label_names(sample, self.run.data)
        require_known_label(name, self._numbers, sample)
        return self._numbers[name]

    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        """See ``FineTuning``; the first call fixes ``balanced`` class weights."""
        rows = super().rows(samples, tokenizer)
        if self.weights is None and self.run.class_weights is not None:
            counts = np.bincount(rows.values[LABELS], minlength=len(self.config.labels))
            self.weights = class_weights(self.run.class_weights, self.config.labels, counts)
        return rows

    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the cross-entropy."""
        logits, labels = outputs.logits[self.name], batch[LABELS]
        weight = None if self.weights is None else logits.new_tensor(self.weights)
        loss = F.cross_entropy(logits, labels, weight=weight, reduction="sum")
        return LossOutput(
            {self.name: loss},
            predictions={"prediction": logits.detach().argmax(-1), "label": labels},
        )

    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        """See ``zoo.evaluate.metrics.classification_metrics``."""
        confusion = confusion_matrix(
            predictions["label"], predictions["prediction"], len(self.config.labels)
        )
        return {name: float(value) for name, value in classification_metrics(confusion).items()}


def class_weights(
    setting: str | Mapping[str, float], labels: Sequence[str], counts: "NDArray[np.integer[Any]]"
) -> tuple[float, ...]:
    """Return the weight of each label.

    Args:
        setting: ``balanced``, or the weights by label.
        labels: the labels in order.
        counts: number of training samples of each label, (labels,).

    Raises:
        UsageError: the weights are not those of the labels.
    """
    if isinstance(setting, str):
        return tuple(float(counts.sum() / (len(labels) * count)) for count in counts)
    if set(setting) != set(labels) or min(setting.values()) < 0:
        raise UsageError(
            f"class_weights has {', '.join(setting)}, and the labels are {', '.join(labels)}",
            "give each label a weight of 0 or more",
        )
    return tuple(setting[label] for label in labels)
