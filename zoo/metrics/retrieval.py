"""Metrics of retrieval and reranking: the ranks of relevant texts among all texts of a query."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

CUTOFFS = (1, 5, 10)  # of recall
NAMES = ("mrr", "accuracy", *(f"recall_at_{cutoff}" for cutoff in CUTOFFS))
RANKED = ("ndcg_at_10", "mrr_at_10", "map", "map_at_100")
RANKING_NAMES = (*RANKED, "accuracy", *(f"recall_at_{cutoff}" for cutoff in (*CUTOFFS, 100)))


def retrieval_scores(
    similarities: Iterable[tuple[Floats, float]], relevant: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Return the values of ``NAMES`` for each anchor, (anchors, names); metrics are their means."""
    # For each anchor, ``similarities`` has one of each text, (texts,), and the difference up to
    # which two of them are tied; ``relevant`` has the indices of the texts that belong to it, at
    # least one.
    # As in ``InformationRetrievalEvaluator`` of sentence-transformers: 1 / rank of the first
    # relevant text, without a cutoff; whether it is the first of all texts; and the fraction of the
    # relevant texts among the first k. With ties, each is the expectation over their orders.
    scores = np.empty((len(relevant), len(NAMES)))
    for number, (row, error) in enumerate(similarities):
        scores[number] = expected_scores(row, relevant[number], error)
    return scores


def expected_scores(
    similarities: Floats, relevant: Sequence[int], error: float = 0.0
) -> list[float]:
    """Return the values of ``NAMES`` for one anchor, expected over random orders of tied texts."""
    # Of a text with g texts before it and t tied ones, itself included, the rank is g + 1 to g + t,
    # each with the probability 1 / t. Similarities are tied up to a difference of ``error``. The
    # values are NaN where a similarity is not finite.
    if not np.isfinite(similarities).all():
        return [float("nan")] * len(NAMES)
    places = Places.of(similarities, relevant, error)
    return [places.reciprocal_rank(), places.first(), *map(places.recall, CUTOFFS)]


def ranking_scores(
    similarities: Iterable[tuple[Floats, float]], relevance: Sequence[Mapping[int, float]]
) -> NDArray[np.float64]:
    """Return the values of ``RANKING_NAMES`` for each query, (queries, names)."""
    # For each query, ``similarities`` is as for ``retrieval_scores``, and ``relevance`` has the
    # gain of the texts that were judged, at least one over 0; others have none.
    # NDCG has gains over log2(rank + 1) (Järvelin and Kekäläinen 2002, as in trec_eval); MRR is 0
    # below rank 10; ``map`` is the mean over the relevant texts of the precision at their rank, and
    # ``map_at_100`` over at most 100, where later texts count 0, as in
    # ``InformationRetrievalEvaluator`` of sentence-transformers. With ties, each is the expectation
    # over their orders (McSherry and Najork 2008).
    # With ties, a metric is its expectation over random orders of the tied texts, so that an
    # encoder that cannot tell texts apart finds them by chance. Similarities that differ by
    # rounding are tied.
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

    ahead: NDArray[np.int64]  # texts before each relevant one
    tied: NDArray[np.int64]  # texts of its similarity, itself included
    relevant_ahead: NDArray[np.int64]  # of the texts before it, the relevant ones
    relevant_tied: NDArray[np.int64]

    @classmethod
    def of(cls, similarities: Floats, relevant: Sequence[int], error: float) -> "Places":
        """Return the places from the similarities of all texts, and the relevant ones' indices."""
        own = similarities[list(relevant)]
        counts = [
            [(group > value + error).sum(), (abs(group - value) <= error).sum()]
            for group in (similarities, own)
            for value in own
        ]
        ahead, tied = np.array(counts, np.int64).reshape(2, len(own), 2).transpose(0, 2, 1)
        return cls(ahead[0], ahead[1], tied[0], tied[1])

    def reciprocal_rank(self, cutoff: int | None = None) -> float:
        """Return the expectation of 1 / rank of the first relevant text; 0 after a cutoff."""
        best = int(self.ahead.argmin())
        before = int(self.ahead[best])
        tied = int(self.tied[best])
        return expected_reciprocal_rank(before, tied, int(self.relevant_tied[best]), cutoff)

    def first(self) -> float:
        """Return the probability that a relevant text is the first of all."""
        best = int(self.ahead.argmin())
        return 0.0 if self.ahead[best] else float(self.relevant_tied[best] / self.tied[best])

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
        for ahead, tied, before, level in zip(*(part.tolist() for part in self), strict=True):
            last = ahead + tied if cutoff is None else min(ahead + tied, cutoff)
            ranks = np.arange(ahead + 1, last + 1)
            # of the other relevant texts of its group, the share that is before a rank
            others = (level - 1) / (tied - 1) * (ranks - ahead - 1) if tied > 1 else 0.0
            total += float(((before + 1 + others) / ranks).sum()) / tied
        return total / min(len(self.ahead), cutoff or len(self.ahead))


def expected_reciprocal_rank(
    before: int, tied: int, relevant: int = 1, cutoff: int | None = None
) -> float:
    """Return the expectation of 1 / rank of the first relevant text; 0 after a cutoff."""
    # ``before`` texts precede ``tied`` ones in random order; ``relevant`` of these are relevant.
    # With one relevant text this is (H(g + t) - H(g)) / t, where H are harmonic numbers.
    places = np.arange(1, tied - relevant + 2)  # of the first relevant text among the tied ones
    # the probability of each place follows from the one before, from relevant / tied
    steps = (tied - places[:-1] - relevant + 1) / (tied - places[:-1])
    chances = relevant / tied * np.cumprod([1.0, *steps])
    reached = slice(None) if cutoff is None else before + places <= cutoff
    return float((chances / (before + places))[reached].sum())


def triplet_accuracy(near: Floats, far: Floats, errors: Floats) -> float:
    """Return the fraction of anchors whose text is nearer than the negative; ties count a half."""
    # ``near`` and ``far`` are the similarities of anchors to their texts and negatives, (n,), tied
    # up to a difference of ``errors``. NaN if one is not finite.
    difference = near - far
    if not np.isfinite(difference).all():
        return float("nan")
    return float(np.where(abs(difference) <= errors, 0.5, difference > 0).mean())
