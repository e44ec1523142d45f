"""Metrics of retrieval: the ranks of the texts that belong to an anchor among all texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

CUTOFFS = (1, 5, 10)  # of recall
COMPARED = 1024  # anchors that are compared with all texts at once
NAMES = ("mrr", "accuracy", *(f"recall_at_{cutoff}" for cutoff in CUTOFFS))


def retrieval_scores(
    anchors: "Floats", texts: "Floats", relevant: Sequence[Sequence[int]]
) -> "NDArray[np.float64]":
    """Return the values of ``NAMES`` for each anchor, (anchors, names), of which means are metrics.

    As in ``InformationRetrievalEvaluator`` of sentence-transformers: 1 / rank of the first relevant
    text, without a cutoff; whether it is the first of all texts; and the fraction of the relevant
    texts among the first k. The rank of a text is 1 and the number of texts that are nearer, so
    that ties favour it.

    Args:
        anchors: embeddings of unit length, (anchors, hidden).
        texts: embeddings of unit length, (texts, hidden).
        relevant: indices of the texts that belong to each anchor, at least one.
    """
    import numpy as np

    scores = np.empty((len(anchors), len(NAMES)))
    for start in range(0, len(anchors), COMPARED):
        similarities = anchors[start : start + COMPARED] @ texts.T
        for number, row in enumerate(similarities, start):
            text_ranks = np.array([1 + (row > row[text]).sum() for text in relevant[number]])
            recalls = [float((text_ranks <= cutoff).mean()) for cutoff in CUTOFFS]
            scores[number] = [1 / text_ranks.min(), text_ranks.min() == 1, *recalls]
    return scores
