"""Metrics of retrieval: the ranks of the texts that belong to an anchor among all texts.

With ties, a metric is its expectation over random orders of the tied texts, so that an encoder that
cannot tell texts apart finds them by chance. Similarities that differ by rounding are tied.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoo.inference.processing.similarity import (
    pairwise_similarity,
    rounding_error,
    similarity_matrix,
)
from zoo.tokenizers.pooling import SimilarityFunction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

CUTOFFS = (1, 5, 10)  # of recall
COMPARED = 1 << 25  # similarities that are computed at once
NAMES = ("mrr", "accuracy", *(f"recall_at_{cutoff}" for cutoff in CUTOFFS))


def retrieval_scores(
    anchors: "Floats",
    texts: "Floats",
    relevant: Sequence[Sequence[int]],
    function: SimilarityFunction = "cosine",
    dtype: str = "float32",
) -> "NDArray[np.float64]":
    """Return the values of ``NAMES`` for each anchor, (anchors, names); metrics are their means.

    As in ``InformationRetrievalEvaluator`` of sentence-transformers: 1 / rank of the first relevant
    text, without a cutoff; whether it is the first of all texts; and the fraction of the relevant
    texts among the first k. Of ties, each is the expectation over their orders.

    Args:
        anchors: embeddings, (anchors, hidden).
        texts: embeddings, (texts, hidden).
        relevant: indices of the texts that belong to each anchor, at least one.
        function: similarity of embeddings.
        dtype: dtype in which they were computed; similarities that differ by its rounding are tied.
    """
    import numpy as np

    scores = np.empty((len(anchors), len(NAMES)))
    count = max(1, COMPARED // len(texts))
    for start in range(0, len(anchors), count):
        part = anchors[start : start + count]
        errors = rounding_error(part, texts, function, dtype).tolist()
        for number, row in enumerate(similarity_matrix(part, texts, function)):
            expected = expected_scores(row, relevant[start + number], errors[number])
            scores[start + number] = expected
    return scores


def expected_scores(
    similarities: "Floats", relevant: Sequence[int], error: float = 0.0
) -> list[float]:
    """Return the values of ``NAMES`` for one anchor, expected over random orders of tied texts.

    Of a text with g texts before it and t tied ones, itself included, the rank is g + 1 to g + t,
    each with the probability 1 / t. The values are NaN where a similarity is not finite.

    Args:
        similarities: similarity of each text to the anchor, (texts,).
        relevant: indices of the texts that belong to it.
        error: difference up to which similarities are tied.
    """
    import numpy as np

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

    With one relevant text this is (H(g + t) - H(g)) / t, where H are harmonic numbers.

    Args:
        before: number g of texts before the tied ones.
        tied: number t of tied texts, which are in random order.
        relevant: number of relevant texts among the tied ones, at least one.
    """
    import numpy as np

    places = np.arange(1, tied - relevant + 2)  # of the first relevant text among the tied ones
    # the probability of each place follows from the one before, from relevant / tied
    steps = (tied - places[:-1] - relevant + 1) / (tied - places[:-1])
    chances = relevant / tied * np.cumprod([1.0, *steps])
    return float((chances / (before + places)).sum())


def triplet_accuracy(
    anchors: "Floats",
    texts: "Floats",
    negatives: "Floats",
    function: SimilarityFunction,
    dtype: str = "float32",
) -> float:
    """Return the fraction of anchors whose text is nearer than the negative; ties count a half.

    NaN if a similarity is not finite.

    Args:
        anchors: embeddings, (n, hidden).
        texts: embeddings of the text of each anchor, (n, hidden).
        negatives: embeddings of the negative of each anchor, (n, hidden).
        function: similarity of embeddings.
        dtype: see ``retrieval_scores``.
    """
    import numpy as np

    exact, *others = (vectors.astype(np.float64) for vectors in (anchors, texts, negatives))
    near, far = (pairwise_similarity(exact, other, function) for other in others)
    difference = near - far
    if not np.isfinite(difference).all():
        return float("nan")
    compared = np.concatenate([texts, negatives])
    tied = abs(difference) <= rounding_error(anchors, compared, function, dtype)
    return float(np.where(tied, 0.5, difference > 0).mean())
