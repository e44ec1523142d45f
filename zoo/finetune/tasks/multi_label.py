"""Multi-label classification: any number of labels of a text or a pair of texts."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch.nn import functional as F

from zoo.data.readers.labelled import Columns, read_samples, split_labels
from zoo.data.readers.problems import RowProblems
from zoo.families.config import Problem
from zoo.finetune.base import LABELS
from zoo.finetune.labels import ClassTask, label_index
from zoo.finetune.text_inputs import TextTask
from zoo.metrics.classification import multi_label_metrics
from zoo.objectives.base import LossOutput, Outputs
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class MultiLabel(ClassTask, TextTask):
    """Binary cross-entropy of each label, over all labels of all samples.

    The labels of a sample are a list (JSON, Parquet), or text with a separator.
    """

    name: ClassVar[str] = "multi-label"
    head: ClassVar[str] = "sequence-classification"
    problem: ClassVar[Problem | None] = "multi_label_classification"
    default_metric: ClassVar[str] = "f1_micro"

    @property
    def logits_per_count(self) -> float:  # type: ignore[override]
        """See ``TrainingObjective``: the loss counts each label of a row."""
        return 1 / len(self.config.labels)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """See ``FineTuning``."""
        return ("f1_micro", "f1_macro", "exact_match")

    @classmethod
    def read(cls, paths: Sequence[str], data: TableConfig, problems: RowProblems) -> list[Any]:
        """See ``FineTuning``; a sample may have no label."""
        columns = Columns(data.text, data.label_column, data.pair)
        return read_samples(paths, columns, problems, unlabelled=True)

    @classmethod
    def label_names(cls, sample: Any, data: TableConfig) -> tuple[str, ...]:
        """See ``FineTuning``."""
        return split_labels(sample, data.label_separator)

    def target(self, sample: Any) -> Any:
        """Return 1 for each label of the sample and 0 for all others, (labels,), float32."""
        target = np.zeros(len(self.labels), np.float32)
        for name in self.label_names(sample, self.run.data):
            target[label_index(name, self.indices, sample.location)] = 1
        return target

    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the binary cross-entropy."""
        logits, labels = outputs.logits[self.name], batch[LABELS]
        loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
        predictions = {"prediction": logits.detach() >= 0, "label": labels > 0}
        return LossOutput({self.name: loss}, predictions=predictions)

    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        """See ``zoo.metrics.classification.multi_label_metrics``."""
        return multi_label_metrics(predictions["prediction"], predictions["label"])
