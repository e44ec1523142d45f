"""Rows of predictions, which ``zoo eval --predictions`` and reports of runs have in common."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoo.data.readers.labelled import label_number
from zoo.finetuning.embeddings.data import TextGroup
from zoo.inference.results import Prediction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RANK_DIFFERENCE = "rank_difference"


def embedding_mistake(row: Prediction) -> float | None:
    """Return by how much the ranks of a pair differ, or the rank of an anchor's own text."""
    if RANK_DIFFERENCE in row:
        return float(abs(row[RANK_DIFFERENCE]))
    if "rank" in row:
        return None if row["rank"] == 1 else float(row["rank"])
    if row.get("correct", True):
        return None
    return float(row.get("probability") or 0.0)


def scored_row(sample: TextGroup, similarity: float, difference: float) -> Prediction:
    """Return the row of two texts with a score; see ``zoo.metrics.ranks.rank_differences``."""
    return {
        "location": sample.location,
        "text": sample.texts[0],
        "pair": sample.texts[1],
        "label": label_number(sample.label, sample.location),
        "prediction": float(similarity),
        RANK_DIFFERENCE: float(difference),
    }


def margin_row(
    sample: TextGroup, negative: str, margin: float, label: float, difference: float
) -> Prediction:
    """Return the row of an anchor, its text and a negative with the margin of a teacher."""
    return {
        "location": sample.location,
        "text": sample.texts[0],
        "pair": sample.texts[1],
        "negative": negative,
        "label": label,
        "prediction": margin,
        RANK_DIFFERENCE: difference,
    }


def class_row(sample: TextGroup, prediction: str, label: str, probability: float) -> Prediction:
    """Return the row of two texts with a class."""
    return {
        "location": sample.location,
        "text": sample.texts[0],
        "pair": sample.texts[1],
        "label": label,
        "prediction": prediction,
        "probability": probability,
        "correct": prediction == label,
    }


def retrieval_row(
    anchor: str,
    relevant: Sequence[int],
    texts: Sequence[str],
    similarity: "NDArray[np.floating[Any]]",
) -> Prediction:
    """Return the row of an anchor, by its similarity to each text, (texts,)."""
    first = int(similarity.argmax())
    own = similarity[list(relevant)].max()
    return {
        "text": anchor,
        "label": [texts[number] for number in relevant],
        "prediction": texts[first],
        "similarity": float(similarity[first]),
        "rank": int((similarity > own).sum()) + 1,
        "correct": first in relevant,
    }
