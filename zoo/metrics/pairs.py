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
    """Return the metrics of pairs that are positive from a threshold on.

    ``accuracy`` is the best one over all thresholds, and ``f1`` as well, at another threshold;
    precision, recall and Matthews correlation are at the threshold of ``f1``.
    ``average_precision`` is the sum of the precision at each distinct score times the recall that
    it adds. If all labels are equal, the area under the ROC curve is NaN; without a positive pair,
    so is the average precision, and ``f1`` is 0.

    The threshold is the best one for the data itself, as in ``BinaryClassificationEvaluator`` of
    sentence-transformers: pairs of equal scores are on one side of it.
    """
    count = len(scores)
    positives = int(labels.sum())
    order = np.argsort(-scores, kind="stable")
    ranked_scores = scores[order]
    # A threshold is after the last of several equal scores. All arrays below have an entry for each
    # threshold: the pairs above it are predicted to be positive, and some of them are hits.
    is_last_of_tie = np.append(ranked_scores[1:] != ranked_scores[:-1], True)
    predicted = np.arange(1, count + 1)[is_last_of_tie]
    hits = labels[order].cumsum()[is_last_of_tie]
    levels = ranked_scores[is_last_of_tie]
    halfway = (levels[:-1] + levels[1:]) / 2
    thresholds = np.append(np.where(halfway > levels[1:], halfway, levels[:-1]), levels[-1])

    average_precision = float("nan")
    if positives:
        precisions = np.diff(hits, prepend=0) * hits / predicted
        average_precision = float(precisions.sum() / positives)

    accuracies = (hits + (count - positives) - (predicted - hits)) / count
    best = int(accuracies.argmax())
    all_negative_accuracy = 1 - positives / count
    if accuracies[best] > all_negative_accuracy:
        accuracy_threshold = float(thresholds[best])
    else:
        # It is best to call no pair positive, with a threshold above all scores.
        accuracy_threshold = float(np.nextafter(levels[0], np.inf))

    f1 = 2 * hits / (predicted + max(positives, 1))
    best_f1 = int(f1.argmax())
    best_hits = int(hits[best_f1])
    best_predicted = int(predicted[best_f1])
    # The correlation is 0 if all labels or all predictions are equal.
    matthews_correlation = 0.0
    scale = best_predicted * (count - best_predicted) * positives * (count - positives)
    if scale:
        matthews_correlation = (best_hits * count - best_predicted * positives) / scale**0.5
    return {
        "average_precision": average_precision,
        "accuracy": float(max(accuracies[best], all_negative_accuracy)),
        "accuracy_threshold": accuracy_threshold,
        "f1": float(f1[best_f1]),
        "precision": best_hits / best_predicted,
        "recall": best_hits / max(positives, 1),
        "f1_threshold": float(thresholds[best_f1]),
        "matthews_correlation": matthews_correlation,
        "area_under_curve": roc_auc(scores, labels),
    }
