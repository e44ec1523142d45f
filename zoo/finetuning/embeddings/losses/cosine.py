"""Squared error of cosine similarities (Reimers and Gurevych 2019, arXiv:1908.10084, section 3)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.data.readers.labelled import label_number
from zoo.data.readers.problems import RowError
from zoo.finetuning.embeddings.data import TextGroup
from zoo.finetuning.embeddings.losses.base import EmbeddingLoss, LabelContent, Negatives
from zoo.finetuning.embeddings.measures import SCORES, Measure
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.finetuning.embeddings.representation import EmbeddedBatch


@dataclass(frozen=True, kw_only=True)
class CosineError(EmbeddingLoss):
    """Squared error of the cosine similarity of pairs with scores from -1 to 1."""

    name: ClassVar[str] = "cosine"
    summary: ClassVar[str] = "squared error of the cosine similarities of pairs with scores"
    label: ClassVar[LabelContent] = "scores"
    negatives: ClassVar[Negatives] = "none"
    measure: ClassVar[Measure] = SCORES

    # The lowest and the highest score of the data, which are mapped to 0 and 1.
    score_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise ValueError(f"score_range is {self.score_range}, not the lowest score first")

    @override
    def target(self, sample: TextGroup) -> Any:
        score = label_number(sample.label, sample.location)
        if self.score_range is not None:
            low, high = self.score_range
            score = (score - low) / (high - low)
        if not -1 <= score <= 1:
            raise RowError(
                f"{sample.location}: the score {sample.label} is not a cosine similarity",
                "--set task_args.score_range=[LOWEST,HIGHEST] maps scores to 0 to 1",
            )
        return np.float32(score)

    @override
    def sum(self, batch: "EmbeddedBatch") -> "Tensor":
        from zoo.finetuning.embeddings.losses.functions import cosine_error

        return cosine_error(batch.vectors[0], batch.vectors[1], batch.labels).sum()
