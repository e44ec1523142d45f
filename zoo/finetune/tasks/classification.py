"""Text classification: one label of a text or a pair of texts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from torch.nn import functional as F

from zoo.data.readers.labelled import label_name
from zoo.families.config import Problem
from zoo.finetune.base import LABELS
from zoo.finetune.labels import ClassTask, label_index
from zoo.finetune.rows import TokenizedRows
from zoo.finetune.text_inputs import TextTask
from zoo.metrics.classification import ClassCounts, classification_metrics
from zoo.objectives.base import LossOutput, Outputs
from zoo.tokenizers import TextTokenizer
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class TextClassification(ClassTask, TextTask):
    """Cross-entropy of the label.

    With class weights, it is the weighted mean, as of ``torch.nn.CrossEntropyLoss(weight=...)``.
    """

    name: ClassVar[str] = "text-classification"
    head: ClassVar[str] = "sequence-classification"
    problem: ClassVar[Problem | None] = "single_label_classification"
    default_metric: ClassVar[str] = "accuracy"
    fewest_labels: ClassVar[int] = 2

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

    def target(self, sample: Any) -> Any:
        """Return the index of the label."""
        (name,) = self.label_names(sample, self.run.data)
        return label_index(name, self.indices, sample.location)

    def rows(self, samples: Sequence[Any], tokenizer: TextTokenizer) -> TokenizedRows:
        """See ``FineTuning``; the first call fixes ``balanced`` class weights."""
        rows = super().rows(samples, tokenizer)
        self.fix_weights(rows.values[LABELS])
        return replace(rows, counts={**rows.counts, self.name: self.weigh(rows.values[LABELS])})

    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the cross-entropy."""
        logits, labels = outputs.logits[self.name], batch[LABELS]
        weight = self.weights_like(logits)
        loss = F.cross_entropy(logits, labels, weight=weight, reduction="sum")
        return LossOutput(
            {self.name: loss},
            predictions={"prediction": logits.detach().argmax(-1), "label": labels},
        )

    def metrics(self, predictions: "Mapping[str, NDArray[Any]]") -> dict[str, float]:
        """See ``zoo.metrics.classification.classification_metrics``."""
        counts = ClassCounts.of(
            predictions["label"], predictions["prediction"], len(self.config.labels)
        )
        return {name: float(value) for name, value in classification_metrics(counts).items()}
