"""Rows of predictions, which ``zoo eval --predictions`` and reports of runs have in common."""

from typing import TYPE_CHECKING, Any

from zoo.evaluation.base import Prediction
from zoo.metrics.retrieval import ranking_scores
from zoo.tasks.reranker.data import TextList

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def ranked_row(sample: TextList, scored: "tuple[NDArray[np.floating[Any]], float]") -> Prediction:
    """Return the row of a query: the scores of its texts, and their rounding error."""
    scores, _ = scored
    (values,) = ranking_scores([scored], [dict(enumerate(sample.labels))])
    first = int(scores.argmax())
    return {
        "location": sample.location,
        "text": sample.text,
        "documents": list(sample.documents),
        "label": list(sample.labels),
        "prediction": sample.documents[first],
        "scores": [float(score) for score in scores],
        "ndcg_at_10": float(values[0]),
        "correct": sample.labels[first] > 0,
    }
