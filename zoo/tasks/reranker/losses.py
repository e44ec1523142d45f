"""Losses of rerankers, with the conventions of sentence-transformers."""

# Scores and labels are (queries, texts), padded where a query has fewer texts than the longest
# list; ``present`` is false there. Each loss returns a sum, and is divided by the number that
# ``RERANKER_LOSSES`` counts for a list of labels.

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

Weighting = Literal["none", "ndcg-loss1", "ndcg-loss2", "lambda-rank", "ndcg-loss2++"]
LEAST = 1e-10  # of the best gain of a query
MU = 10.0  # weight of NDCG-Loss2 in NDCG-Loss2++, as in the library


class RerankerLoss(NamedTuple):
    """A loss over the texts of queries."""

    needs_lists: bool  # compares the texts of a query, whose rows are joined
    activation: Literal["sigmoid", "identity"]  # makes a score of the model's logit
    count: Callable[[Sequence[float]], int]  # of the labels of a query


def binary_cross_entropy(scores: Tensor, labels: Tensor, present: Tensor) -> Tensor:
    """Return the sum of the cross-entropies of labels from 0 to 1."""
    return F.binary_cross_entropy_with_logits(scores[present], labels[present], reduction="sum")


def list_net(scores: Tensor, labels: Tensor, present: Tensor) -> Tensor:
    """Return the sum over queries of the cross-entropy of two softmax distributions."""
    # ListNet with top-one probabilities (Cao et al. 2007, section 4).
    wanted = labels.masked_fill(~present, -torch.inf).softmax(-1)
    predicted = scores.masked_fill(~present, -1e16).log_softmax(-1)
    return -(wanted * predicted).sum()


def margin_mse(scores: Tensor, labels: Tensor, present: Tensor) -> Tensor:
    """Return the sum of squared errors of the margins between the first text and the others."""
    # Hofstätter et al. 2020 (arXiv:2010.02666); labels are a teacher's scores.
    errors = (scores[:, :1] - scores) - (labels[:, :1] - labels)
    return errors[:, 1:][present[:, 1:]].square().sum()


def lambda_loss(
    scores: Tensor, labels: Tensor, present: Tensor, weighting: Weighting, sigma: float = 1.0
) -> Tensor:
    """Return the sum over pairs of texts of a weight times -log2 of the sigmoid of their margin."""
    # LambdaLoss (Wang et al. 2018). The first text of a pair has the higher label; with
    # ``ndcg-loss1`` pairs are all texts of a query, in both orders.
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
    gains = torch.pow(2, grades) - 1
    gains = gains / ((torch.pow(2, best) - 1) / discounts).sum(-1, keepdim=True).clamp(min=LEAST)
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
    near, far = inverse[(apart - 1).clamp(min=0)], inverse[apart.clamp(max=len(ranks) - 1)]
    bound = (near - far).abs().masked_fill(apart == 0, 0)
    if weighting == "ndcg-loss2":
        return bound * differences
    return (MU * bound + swapped) * differences


def count_ordered(labels: Sequence[float]) -> int:
    """Return the number of pairs of texts with different labels."""
    return sum(first > second for first in labels for second in labels)


RERANKER_LOSSES = {
    "binary-cross-entropy": RerankerLoss(False, "sigmoid", len),
    "cross-entropy": RerankerLoss(False, "identity", len),
    "list-net": RerankerLoss(True, "identity", lambda labels: 1),
    "lambda": RerankerLoss(True, "identity", count_ordered),
    "margin-mse": RerankerLoss(False, "identity", lambda labels: len(labels) - 1),
}
