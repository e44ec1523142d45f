"""Metrics of retrieval: the ranks of the texts that belong to an anchor among all texts.

With ties, a metric is its expectation over random orders of the tied texts, so that an encoder that
cannot tell texts apart finds them by chance. Similarities that differ by rounding are tied.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

CUTOFFS = (1, 5, 10)  # of recall
NAMES = ("mrr", "accuracy", *(f"recall_at_{cutoff}" for cutoff in CUTOFFS))


def retrieval_scores(
    similarities: Iterable[tuple[Floats, float]], relevant: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Return the values of ``NAMES`` for each anchor, (anchors, names); metrics are their means.

    For each anchor, ``similarities`` has one of each text, (texts,), and the difference up to which
    two of them are tied; ``relevant`` has the indices of the texts that belong to it, at least one.

    As in ``InformationRetrievalEvaluator`` of sentence-transformers: 1 / rank of the first relevant
    text, without a cutoff; whether it is the first of all texts; and the fraction of the relevant
    texts among the first k. With ties, each is the expectation over their orders.
    """
    scores = np.empty((len(relevant), len(NAMES)))
    for number, (row, error) in enumerate(similarities):
        scores[number] = expected_scores(row, relevant[number], error)
    return scores


def expected_scores(
    similarities: Floats, relevant: Sequence[int], error: float = 0.0
) -> list[float]:
    """Return the values of ``NAMES`` for one anchor, expected over random orders of tied texts.

    Of a text with g texts before it and t tied ones, itself included, the rank is g + 1 to g + t,
    each with the probability 1 / t. Similarities are tied up to a difference of ``error``. The
    values are NaN where a similarity is not finite.
    """
    if not np.isfinite(similarities).all():
        return [float("nan")] * len(NAMES)
    own = similarities[list(relevant)]
    ahead = np.array([(similarities > value + error).sum() for value in own])
    tied = np.array([(abs(similarities - value) <= error).sum() for value in own])
    best = int(ahead.argmin())
    level = int((abs(own - own[best]) <= error).sum())  # relevant texts tied with the first one
    before, size = int(ahead[best]), int(tied[best])
    reciprocal = expected_reciprocal_rank(before, size, level)
    recalls = [float(np.clip((k - ahead) / tied, 0, 1).mean()) for k in CUTOFFS]
    return [reciprocal, level / size if before == 0 else 0.0, *recalls]


def expected_reciprocal_rank(before: int, tied: int, relevant: int = 1) -> float:
    """Return the expectation of 1 / rank of the first relevant text.

    ``before`` texts precede ``tied`` ones in random order, of which ``relevant`` are relevant. With
    one relevant text this is (H(g + t) - H(g)) / t, where H are harmonic numbers.
    """
    places = np.arange(1, tied - relevant + 2)  # of the first relevant text among the tied ones
    # the probability of each place follows from the one before, from relevant / tied
    steps = (tied - places[:-1] - relevant + 1) / (tied - places[:-1])
    chances = relevant / tied * np.cumprod([1.0, *steps])
    return float((chances / (before + places)).sum())


def triplet_accuracy(near: Floats, far: Floats, errors: Floats) -> float:
    """Return the fraction of anchors whose text is nearer than the negative; ties count a half.

    ``near`` and ``far`` are the similarities of anchors to their texts and negatives, (n,), tied up
    to a difference of ``errors``. NaN if one is not finite.
    """
    difference = near - far
    if not np.isfinite(difference).all():
        return float("nan")
    return float(np.where(abs(difference) <= errors, 0.5, difference > 0).mean())
