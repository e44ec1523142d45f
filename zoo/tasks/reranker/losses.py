"""Losses of rerankers, with the conventions of sentence-transformers.

Scores and labels are (queries, texts), padded where a query has fewer texts than the longest list;
``present`` is false there. A loss returns a sum, and is divided by the number that it counts for
the labels of a query.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.data.readers.problems import RowError
from zoo.overrides import override
from zoo.tasks.reranker.data import TextList

if TYPE_CHECKING:
    from numpy.typing import NDArray

Weighting = Literal["none", "ndcg-loss1", "ndcg-loss2", "lambda-rank", "ndcg-loss2++"]
SMALLEST_GAIN = 1e-10  # The smallest best gain of a query.
MU = 10.0  # The weight of NDCG-Loss2 in NDCG-Loss2++, as in the library.


class RankingLoss(ABC):
    """A loss over the texts of queries.

    Attributes:
        name: value of the option ``loss``.
        needs_lists: whether it compares the texts of a query, whose rows are joined.
        activation: function that makes a score of the model's logit; ``None`` if the model is a
            classifier of grades.
    """

    name: ClassVar[str]
    needs_lists: ClassVar[bool] = False
    activation: ClassVar[Literal["sigmoid", "identity"] | None] = "identity"

    def check(self, sample: TextList, labels: "NDArray[np.float32]", outputs: int) -> None:
        """Check the labels of a query.

        Args:
            sample: the query.
            labels: its labels, in the range that the options ask for, (texts,).
            outputs: number of outputs of the model.

        Raises:
            RowError: the loss does not take these labels.
        """
        if sample.margins:
            raise RowError(
                f"{sample.location} has a label for the negatives only",
                "give each text a label, or --set task_args.loss=margin-mse for margins",
            )

    def grades(self, sample: TextList) -> Sequence[float]:
        """Return the relevance of texts for metrics; by default their labels."""
        return sample.labels

    @abstractmethod
    def count(self, labels: Sequence[float], options: Any) -> int:
        """Return the number of values that the labels of a query add to the sum."""

    @abstractmethod
    def sum(self, scores: Tensor, labels: Tensor, present: Tensor, options: Any) -> Tensor:
        """Return the sum over queries; all arguments are (queries, texts)."""


class BinaryCrossEntropyLoss(RankingLoss):
    """Binary cross-entropy of labels from 0 to 1 of each text."""

    name = "binary-cross-entropy"
    activation = "sigmoid"

    @override
    def check(self, sample: TextList, labels: "NDArray[np.float32]", outputs: int) -> None:
        super().check(sample, labels, outputs)
        if not ((labels >= 0) & (labels <= 1)).all():
            raise RowError(
                f"{sample.location} has a label that is not from 0 to 1",
                "--set task_args.score_range=[LOWEST,HIGHEST] maps labels to 0 to 1",
            )

    @override
    def count(self, labels: Sequence[float], options: Any) -> int:
        return len(labels)

    @override
    def sum(self, scores: Tensor, labels: Tensor, present: Tensor, options: Any) -> Tensor:
        return binary_cross_entropy(scores, labels, present)


class GradeCrossEntropyLoss(RankingLoss):
    """Cross-entropy of the grade of each text, which is a class with an output of the model."""

    name = "cross-entropy"
    activation = None

    @override
    def check(self, sample: TextList, labels: "NDArray[np.float32]", outputs: int) -> None:
        super().check(sample, labels, outputs)
        not_classes = labels[(labels % 1 != 0) | (labels < 0) | (labels >= outputs)]
        if len(not_classes):
            raise RowError(
                f"{sample.location}: the label {not_classes[0]:g} is not a class",
                f"cross-entropy takes the grades of the training data, 0 to {outputs - 1}",
            )

    @override
    def count(self, labels: Sequence[float], options: Any) -> int:
        return len(labels)

    @override
    def sum(self, scores: Tensor, labels: Tensor, present: Tensor, options: Any) -> Tensor:
        """Return the sum; ``scores`` are the logits of pairs, (pairs, grades)."""
        return F.cross_entropy(scores, labels.long(), reduction="sum")


class ListNetLoss(RankingLoss):
    """Cross-entropy of two distributions over the texts of a query."""

    name = "list-net"
    needs_lists = True

    @override
    def count(self, labels: Sequence[float], options: Any) -> int:
        return 1

    @override
    def sum(self, scores: Tensor, labels: Tensor, present: Tensor, options: Any) -> Tensor:
        return list_net(scores, labels, present)


class LambdaRankingLoss(RankingLoss):
    """LambdaLoss over pairs of texts of a query."""

    name = "lambda"
    needs_lists = True

    @override
    def count(self, labels: Sequence[float], options: Any) -> int:
        if options.weighting == "ndcg-loss1":
            return len(labels) ** 2
        return count_ordered(labels)

    @override
    def sum(self, scores: Tensor, labels: Tensor, present: Tensor, options: Any) -> Tensor:
        return lambda_loss(scores, labels, present, options.weighting, options.sigma)


class MarginErrorLoss(RankingLoss):
    """Squared error of margins next to a teacher's scores of a text and negatives."""

    name = "margin-mse"

    @override
    def check(self, sample: TextList, labels: "NDArray[np.float32]", outputs: int) -> None:
        if len(labels) < 2:
            raise RowError(
                f"{sample.location} has one text, and margin-mse compares it with negatives",
                "name their columns with --negative, or give lists",
            )

    @override
    def grades(self, sample: TextList) -> Sequence[float]:
        """Return 1 for the text before its negatives, and 0 for these."""
        return (1.0, *[0.0] * (len(sample.documents) - 1))

    @override
    def count(self, labels: Sequence[float], options: Any) -> int:
        return len(labels) - 1

    @override
    def sum(self, scores: Tensor, labels: Tensor, present: Tensor, options: Any) -> Tensor:
        return margin_mse(scores, labels, present)


RANKING_LOSSES: dict[str, RankingLoss] = {
    loss.name: loss
    for loss in (
        BinaryCrossEntropyLoss(),
        GradeCrossEntropyLoss(),
        ListNetLoss(),
        LambdaRankingLoss(),
        MarginErrorLoss(),
    )
}


def binary_cross_entropy(scores: Tensor, labels: Tensor, present: Tensor) -> Tensor:
    """Return the sum of the cross-entropies of labels from 0 to 1."""
    return F.binary_cross_entropy_with_logits(scores[present], labels[present], reduction="sum")


def list_net(scores: Tensor, labels: Tensor, present: Tensor) -> Tensor:
    """Return the sum over queries of the cross-entropy of two softmax distributions.

    ListNet with top-one probabilities (Cao et al. 2007, section 4).
    """
    target_probabilities = labels.masked_fill(~present, -torch.inf).softmax(-1)
    predicted = scores.masked_fill(~present, -1e16).log_softmax(-1)
    return -(target_probabilities * predicted).sum()


def margin_mse(scores: Tensor, labels: Tensor, present: Tensor) -> Tensor:
    """Return the sum of squared errors of the margins between the first text and the others.

    Hofstätter et al. 2020 (arXiv:2010.02666); labels are a teacher's scores.
    """
    errors = (scores[:, :1] - scores) - (labels[:, :1] - labels)
    return errors[:, 1:][present[:, 1:]].square().sum()


def lambda_loss(
    scores: Tensor, labels: Tensor, present: Tensor, weighting: Weighting, sigma: float = 1.0
) -> Tensor:
    """Return the sum over pairs of texts of a weight times -log2 of the sigmoid of their margin.

    LambdaLoss (Wang et al. 2018). The first text of a pair has the higher label; with
    ``ndcg-loss1`` pairs are all texts of a query, in both orders.
    """
    scores = scores.masked_fill(~present, -1e16)
    ranked, order = scores.sort(descending=True, dim=-1)
    grades = labels.masked_fill(~present, -torch.inf).gather(1, order)
    real = present.gather(1, order)
    pairs = real[:, :, None] & real[:, None, :]
    if weighting != "ndcg-loss1":
        pairs = pairs & (grades[:, :, None] > grades[:, None, :])
    weights = _pair_weights(grades.clamp(min=0), weighting)
    margins = (ranked[:, :, None] - ranked[:, None, :]).clamp(min=-1e8, max=1e8)
    losses = weights * F.logsigmoid(sigma * margins) / math.log(2)
    return -losses[pairs].sum()


def _pair_weights(grades: Tensor, weighting: Weighting) -> Tensor:
    """Return the weights of pairs of ranks, (queries, ranks, ranks), from grades in this order."""
    ranks = torch.arange(1, grades.shape[1] + 1, device=grades.device)
    discounts = torch.log2(1.0 + ranks)
    best = grades.sort(descending=True, dim=-1).values
    best_gain = ((torch.pow(2, best) - 1) / discounts).sum(-1, keepdim=True)
    gains = (torch.pow(2, grades) - 1) / best_gain.clamp(min=SMALLEST_GAIN)
    if weighting == "none":
        return torch.ones_like(gains)[:, :, None]
    if weighting == "ndcg-loss1":
        return (gains / discounts)[:, :, None]
    differences = (gains[:, :, None] - gains[:, None, :]).abs()
    inverse = 1 / discounts
    swapped = (inverse[:, None] - inverse[None, :]).abs()
    if weighting == "lambda-rank":
        return swapped * differences
    apart = (ranks[:, None] - ranks[None, :]).abs()
    # the discount of a pair only depends on the distance of its ranks
    near = inverse[(apart - 1).clamp(min=0)]
    far = inverse[apart.clamp(max=len(ranks) - 1)]
    bound = (near - far).abs().masked_fill(apart == 0, 0)
    if weighting == "ndcg-loss2":
        return bound * differences
    return (MU * bound + swapped) * differences


def count_ordered(labels: Sequence[float]) -> int:
    """Return the number of pairs of texts with different labels."""
    return sum(first > second for first in labels for second in labels)
