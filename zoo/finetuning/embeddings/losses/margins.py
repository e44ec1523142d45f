"""Losses of the margins between a text and negatives, next to a teacher's."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.data.readers.labelled import label_number
from zoo.data.readers.problems import RowError
from zoo.finetuning.embeddings.data import TextGroup
from zoo.finetuning.embeddings.losses.base import EmbeddingLoss, LabelContent, Negatives
from zoo.finetuning.embeddings.measures import MARGINS, Measure
from zoo.overrides import override
from zoo.training.config.finetune import TableConfig

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.finetuning.embeddings.representation import EmbeddedBatch


def teacher_margins(sample: TextGroup) -> Any:
    """Return how much higher a teacher scores a text than each negative, (negatives,), float32."""
    values = sample.label if isinstance(sample.label, list) else [sample.label]
    numbers = np.array([label_number(value, sample.location) for value in values], np.float32)
    negatives = len(sample.texts) - 2
    if len(numbers) == negatives + 1:  # Scores of the text and of the negatives.
        return np.asarray(numbers[0] - numbers[1:])
    if len(numbers) != negatives:
        raise RowError(
            f"{sample.location} has {len(numbers)} scores, and {negatives} negatives",
            "give a score of the text and of each negative, or a margin for each negative",
        )
    return numbers


@dataclass(frozen=True, kw_only=True)
class MarginError(EmbeddingLoss):
    """Squared error of margins of dot products (Hofstätter et al. 2020, arXiv:2010.02666)."""

    name: ClassVar[str] = "margin-mse"
    summary: ClassVar[str] = "squared error of margins to negatives, next to a teacher's"
    label: ClassVar[LabelContent] = "teacher"
    negatives: ClassVar[Negatives] = "some"
    measure: ClassVar[Measure] = MARGINS
    compares_any: ClassVar[bool] = True

    @override
    def target(self, sample: TextGroup) -> Any:
        return teacher_margins(sample)

    @override
    def values_per_row(self, table: TableConfig) -> int:
        return len(table.negatives)

    @override
    def sum(self, batch: "EmbeddedBatch") -> "Tensor":
        from zoo.finetuning.embeddings.losses.functions import margin_error

        return margin_error(batch.margins(), batch.labels).sum()


@dataclass(frozen=True, kw_only=True)
class MarginDivergence(EmbeddingLoss):
    """Divergence from a teacher's probabilities of a text and its negatives.

    Lin et al. 2020, arXiv:2010.11386, section 3.
    """

    name: ClassVar[str] = "kl-div"
    summary: ClassVar[str] = "divergence from a teacher's probabilities of a text and its negatives"
    label: ClassVar[LabelContent] = "teacher"
    negatives: ClassVar[Negatives] = "some"
    measure: ClassVar[Measure] = MARGINS
    compares_any: ClassVar[bool] = True

    temperature: float = 1.0  # Temperature of the probabilities.

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}, not positive")

    @override
    def target(self, sample: TextGroup) -> Any:
        return teacher_margins(sample)

    @override
    def sum(self, batch: "EmbeddedBatch") -> "Tensor":
        from zoo.finetuning.embeddings.losses.functions import margin_divergence

        return margin_divergence(batch.margins(), batch.labels, self.temperature).sum()
