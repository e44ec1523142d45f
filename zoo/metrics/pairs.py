"""Binary classification of pairs by a score, such as the similarity of two embeddings."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.metrics.ranks import roc_auc

Floats = NDArray[np.floating[Any]]
NAMES = (
    "average_precision",
    "accuracy",
    "accuracy_threshold",
    "f1",
    "precision",
    "recall",
    "f1_threshold",
    "matthews_correlation",
    "area_under_curve",
)


def pair_classification_metrics(scores: Floats, labels: NDArray[np.bool_]) -> dict[str, float]:
    """Return the metrics of pairs that are positive from a threshold on."""
    # ``accuracy`` is the best one over all thresholds, and ``f1`` as well, at another threshold;
    # precision, recall and Matthews correlation are at the threshold of ``f1``.
    # ``average_precision`` is the sum of the precision at each distinct score times the recall that
    # it adds. With labels of one kind only, the area under the ROC curve is NaN; without a positive
    # one, so is the average precision, and ``f1`` is 0.
    # The threshold is the best one for the data itself, as in ``BinaryClassificationEvaluator`` of
    # sentence-transformers: pairs of equal scores are on one side of it.
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    hits = labels[order].cumsum()
    last = np.append(ranked[1:] != ranked[:-1], True)  # a threshold is after the last of a tie
    found = np.arange(1, len(scores) + 1)[last]
    hits = hits[last]
    levels = ranked[last]
    positives = int(labels.sum())
    halfway = (levels[:-1] + levels[1:]) / 2
    thresholds = np.append(np.where(halfway > levels[1:], halfway, levels[:-1]), levels[-1])
    accuracies = (hits + (len(scores) - positives) - (found - hits)) / len(scores)
    all_negative = 1 - positives / len(scores)
    best = int(accuracies.argmax())
    metrics = {
        "average_precision": (
            float((np.diff(hits, prepend=0) * hits / found).sum() / positives)
            if positives
            else float("nan")
        ),
        "accuracy": float(max(accuracies[best], all_negative)),
        # above all scores if it is best to call no pair positive
        "accuracy_threshold": float(
            thresholds[best] if accuracies[best] > all_negative else np.nextafter(levels[0], np.inf)
        ),
    }
    f1 = 2 * hits / (found + max(positives, 1))
    best = int(f1.argmax())
    true = int(hits[best])
    chosen = int(found[best])
    count = len(scores)
    scale = chosen * (count - chosen) * positives * (count - positives)
    metrics |= {
        "f1": float(f1[best]),
        "precision": true / chosen,
        "recall": true / max(positives, 1),
        "f1_threshold": float(thresholds[best]),
        # 0 if all pairs or all predictions are of one kind
        "matthews_correlation": (true * count - chosen * positives) / scale**0.5 if scale else 0.0,
        "area_under_curve": roc_auc(scores, labels),
    }
    return metrics
