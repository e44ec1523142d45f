"""Metrics of retrieval and reranking: the ranks of relevant texts among all texts of a query."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

CUTOFFS = (1, 5, 10)  # ranks up to which recall counts texts
NAMES = ("mrr", "accuracy", *(f"recall_at_{cutoff}" for cutoff in CUTOFFS))
RANKED = ("ndcg_at_10", "mrr_at_10", "map", "map_at_100")
RANKING_NAMES = (*RANKED, "accuracy", *(f"recall_at_{cutoff}" for cutoff in (*CUTOFFS, 100)))


def retrieval_scores(
    similarities: Iterable[tuple[Floats, float]], relevant: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Return the values of ``NAMES`` for each anchor, (anchors, names); metrics are their means.

    As in ``InformationRetrievalEvaluator`` of sentence-transformers: 1 / rank of the first
    relevant text, without a cutoff; whether it is the first of all texts; and the fraction of the
    relevant texts among the first k. With ties, each is the expectation over their orders.

    Args:
        similarities: for each anchor, its similarity to each text, (texts,), and the difference up
            to which two of them are tied.
        relevant: for each anchor, the indices of the texts that belong to it, at least one.
    """
    scores = np.empty((len(relevant), len(NAMES)))
    for number, (row, error) in enumerate(similarities):
        scores[number] = expected_scores(row, relevant[number], error)
    return scores


def expected_scores(
    similarities: Floats, relevant: Sequence[int], error: float = 0.0
) -> list[float]:
    """Return the values of ``NAMES`` for one anchor, expected over random orders of tied texts.

    A text with g texts before it and t tied ones, itself included, has each of the ranks g + 1 to
    g + t with the probability 1 / t. Similarities are tied up to a difference of ``error``. The
    values are NaN where a similarity is not finite.
    """
    if not np.isfinite(similarities).all():
        return [float("nan")] * len(NAMES)
    places = Places.of(similarities, relevant, error)
    return [places.reciprocal_rank(), places.first(), *map(places.recall, CUTOFFS)]


def ranking_scores(
    similarities: Iterable[tuple[Floats, float]], relevance: Sequence[Mapping[int, float]]
) -> NDArray[np.float64]:
    """Return the values of ``RANKING_NAMES`` for each query, (queries, names).

    NDCG has gains over log2(rank + 1) (Järvelin and Kekäläinen 2002, as in trec_eval); MRR is 0
    below rank 10; ``map`` is the mean over the relevant texts of the precision at their rank, and
    ``map_at_100`` over at most 100, where later texts count 0, as in
    ``InformationRetrievalEvaluator`` of sentence-transformers.

    With ties, a metric is its expectation over random orders of the tied texts (McSherry and
    Najork 2008), so that an encoder that cannot tell texts apart finds them by chance. Similarities
    that differ by rounding are tied.

    Args:
        similarities: for each query, as for ``retrieval_scores``.
        relevance: for each query, the gains of the texts that were judged, at least one over 0;
            other texts have none.
    """
    scores = np.empty((len(relevance), len(RANKING_NAMES)))
    for number, (row, error) in enumerate(similarities):
        scores[number] = expected_ranking_scores(row, relevance[number], error)
    return scores


def expected_ranking_scores(
    similarities: Floats, gains: Mapping[int, float], error: float = 0.0
) -> list[float]:
    """Return the values of ``RANKING_NAMES`` for one query, see ``ranking_scores``."""
    if not np.isfinite(similarities).all():
        return [float("nan")] * len(RANKING_NAMES)
    relevant = {index: gain for index, gain in gains.items() if gain > 0}
    places = Places.of(similarities, list(relevant), error)
    return [
        places.ndcg(np.array(list(relevant.values()), np.float64), 10),
        places.reciprocal_rank(10),
        places.average_precision(),
        places.average_precision(100),
        places.first(),
        *map(places.recall, (*CUTOFFS, 100)),
    ]


class Places(NamedTuple):
    """The ranks that relevant texts of a query may have: random among ties, (relevant,) each."""

    ahead: NDArray[np.int64]  # number of texts before each relevant one
    tied: NDArray[np.int64]  # number of texts of its similarity, itself included
    relevant_ahead: NDArray[np.int64]  # number of relevant texts before it
    relevant_tied: NDArray[np.int64]  # number of relevant texts of its similarity

    @classmethod
    def of(cls, similarities: Floats, relevant: Sequence[int], error: float) -> "Places":
        """Return the places from the similarities of all texts, and the relevant ones' indices."""
        relevant_similarities = similarities[list(relevant)]
        ahead, tied = _count_ahead_and_tied(similarities, relevant_similarities, error)
        relevant_ahead, relevant_tied = _count_ahead_and_tied(
            relevant_similarities, relevant_similarities, error
        )
        return cls(ahead, tied, relevant_ahead, relevant_tied)

    def reciprocal_rank(self, cutoff: int | None = None) -> float:
        """Return the expectation of 1 / rank of the first relevant text; 0 after a cutoff."""
        best = int(self.ahead.argmin())
        ahead = int(self.ahead[best])
        tied = int(self.tied[best])
        return expected_reciprocal_rank(ahead, tied, int(self.relevant_tied[best]), cutoff)

    def first(self) -> float:
        """Return the probability that a relevant text is the first of all."""
        best = int(self.ahead.argmin())
        if self.ahead[best] > 0:
            return 0.0
        return float(self.relevant_tied[best] / self.tied[best])

    def recall(self, cutoff: int) -> float:
        """Return the expected fraction of the relevant texts among the first ones."""
        return float(np.clip((cutoff - self.ahead) / self.tied, 0, 1).mean())

    def ndcg(self, gains: NDArray[np.float64], cutoff: int) -> float:
        """Return the expected discounted gain of the first texts, as a fraction of the best one."""
        discounts = np.cumsum([0.0, *1 / np.log2(np.arange(2, cutoff + 2))])
        ends = np.minimum([self.ahead, self.ahead + self.tied], cutoff)
        gain = (gains * (discounts[ends[1]] - discounts[ends[0]]) / self.tied).sum()
        best = np.sort(gains)[::-1][:cutoff]
        return float(gain / (best * np.diff(discounts)[: len(best)]).sum())

    def average_precision(self, cutoff: int | None = None) -> float:
        """Return the expected mean precision at the ranks of the relevant texts."""
        total = 0.0
        for place in zip(*(part.tolist() for part in self), strict=True):
            ahead, tied, relevant_ahead, relevant_tied = place
            last_rank = ahead + tied
            if cutoff is not None:
                last_rank = min(last_rank, cutoff)
            ranks = np.arange(ahead + 1, last_rank + 1)
            # The expected number of tied relevant texts before each rank, without the text itself.
            tied_before = 0.0
            if tied > 1:
                tied_before = (relevant_tied - 1) / (tied - 1) * (ranks - ahead - 1)
            total += float(((relevant_ahead + 1 + tied_before) / ranks).sum()) / tied
        return total / min(len(self.ahead), cutoff or len(self.ahead))


def _count_ahead_and_tied(
    similarities: Floats, values: Floats, error: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many similarities are larger than each value, and how many equal it."""
    ahead = [(similarities > value + error).sum() for value in values]
    tied = [(abs(similarities - value) <= error).sum() for value in values]
    return np.array(ahead, np.int64), np.array(tied, np.int64)


def expected_reciprocal_rank(
    ahead: int, tied: int, relevant: int = 1, cutoff: int | None = None
) -> float:
    """Return the expectation of 1 / rank of the first relevant text; 0 after a cutoff.

    With one relevant text this is (H(g + t) - H(g)) / t, where H are harmonic numbers, for g texts
    ahead and t tied ones.

    Args:
        ahead: number of texts that precede the tied ones.
        tied: number of texts in random order.
        relevant: number of relevant texts among the tied ones.
        cutoff: last rank that counts.
    """
    # Places of the first relevant text among the tied ones. The probability of the first place is
    # relevant / tied, and the probability of each later one follows from the previous place.
    places = np.arange(1, tied - relevant + 2)
    steps = (tied - places[:-1] - relevant + 1) / (tied - places[:-1])
    probabilities = relevant / tied * np.cumprod([1.0, *steps])
    reciprocals = probabilities / (ahead + places)
    if cutoff is not None:
        reciprocals = reciprocals[ahead + places <= cutoff]
    return float(reciprocals.sum())


def triplet_accuracy(near: Floats, far: Floats, errors: Floats) -> float:
    """Return the fraction of anchors whose text is nearer than the negative; ties count a half.

    The fraction is NaN if a similarity is not finite.

    Args:
        near: similarities of anchors to their texts, (n,).
        far: similarities of anchors to their negatives, (n,).
        errors: differences up to which both are tied, (n,).
    """
    difference = near - far
    if not np.isfinite(difference).all():
        return float("nan")
    return float(np.where(abs(difference) <= errors, 0.5, difference > 0).mean())
