"""Regression: a number for a text or a pair of texts."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch.nn import functional as F

from zoo.data.readers.labelled import label_number
from zoo.data.readers.review import Reviewed
from zoo.evaluation.one_sided import warn_of_equal_numbers
from zoo.families.config import Problem
from zoo.finetune.base import LABELS
from zoo.finetune.rows import TokenizedRows
from zoo.finetune.text_inputs import TextTask
from zoo.metrics.ranks import regression_metrics
from zoo.objectives.base import LossOutput, Outputs
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class Regression(TextTask):
    """Squared error of one output."""

    name: ClassVar[str] = "regression"
    head: ClassVar[str] = "sequence-classification"
    problem: ClassVar[Problem | None] = "regression"
    default_metric: ClassVar[str] = "pearson"

    @property
    def metric_names(self) -> tuple[str, ...]:
        """See ``FineTuning``."""
        return ("pearson", "spearman", "mse")

    @classmethod
    def output_names(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the name of the one output, as in transformers."""
        return ("LABEL_0",)

    @classmethod
    def check(cls, sample: Any, data: TableConfig) -> Any:
        """See ``FineTuning``: the label is a number."""
        label_number(sample.label, sample.location)
        return sample

    @classmethod
    def review(cls, sample: Any, data: TableConfig) -> Reviewed:
        """See ``FineTuning``."""
        return Reviewed(cls.texts(sample), (label_number(sample.label, sample.location),))

    def target(self, sample: Any) -> Any:
        """Return the number, float32."""
        return np.float32(label_number(sample.label, sample.location))

    def data_warnings(
        self, train: Sequence[Any], evaluation: Sequence[Any], rows: TokenizedRows
    ) -> list[str]:
        """See ``FineTuning``: numbers that are all equal."""
        numbers = ([self.target(sample) for sample in part] for part in (train, evaluation))
        return [
            *super().data_warnings(train, evaluation, rows),
            *warn_of_equal_numbers(next(numbers), training=True),
            *warn_of_equal_numbers(next(numbers)),
        ]

    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the squared error."""
        values, labels = outputs.logits[self.name].squeeze(-1), batch[LABELS]
        return LossOutput(
            {self.name: F.mse_loss(values, labels, reduction="sum")},
            predictions={"prediction": values.detach(), "label": labels},
        )

    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        """See ``zoo.metrics.ranks.regression_metrics``."""
        return regression_metrics(predictions["prediction"], predictions["label"])
