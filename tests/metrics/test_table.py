"""The table of metrics: each value of a better model is on the side that the table says."""

import numpy as np

from zoo.metrics import METRICS
from zoo.metrics.classification import (
    ClassCounts,
    classification_metrics,
    multi_label_metrics,
    reliability,
)
from zoo.metrics.entities import entity_counts, entity_scores
from zoo.metrics.likelihood import likelihood_metrics
from zoo.metrics.ordinal import ordinal_metrics
from zoo.metrics.pairs import pair_classification_metrics
from zoo.metrics.ranks import regression_metrics, roc_auc
from zoo.metrics.retrieval import NAMES, RANKING_NAMES, ranking_scores, retrieval_scores
from zoo.metrics.squad import ScoredAnswers
from zoo.plugins.tasks import built_in_tasks

LABELS = np.array([0, 1, 0, 1, 0, 1])
TEACHER = ["similarity", "cosine", "kl"]  # which distillation measures against another model


def metrics_of(predictions: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> dict[str, float]:
    """Return every metric of the same predictions, read as labels, numbers, entities and so on."""
    correct = predictions == LABELS
    names = [["B-A" if value else "O" for value in values] for values in (LABELS, predictions)]
    texts = [[str(value) for value in values] for values in (LABELS, predictions)]
    both = [np.stack([values == 0, values == 1], 1) for values in (LABELS, predictions)]
    # the only relevant text is as far behind the others as there are errors
    similarities = np.arange(20.0) + 19.5 - 2 * (~correct).sum() * (np.arange(20) == 0)
    similarities[0] = 100.0 if correct.all() else -1.0
    # 150 texts, the last of which is the relevant one unless all are correct
    many = np.append(np.zeros(149), 1.0 if correct.all() else -1.0)
    pairs = pair_classification_metrics(predictions.astype(float), LABELS == 1)
    counts = [ClassCounts.of(LABELS, predictions, size) for size in (2, 3)]
    nats = float(1 + (~correct).sum())
    return {
        **{k: float(v) for size in counts for k, v in classification_metrics(size).items()},
        **multi_label_metrics(both[1], both[0]),
        "calibration_error": reliability(np.full(6, 0.99), correct)[0],
        **ordinal_metrics(predictions, LABELS),
        **regression_metrics(predictions.astype(float), LABELS.astype(float)),
        "area_under_curve": roc_auc(predictions.astype(float), LABELS == 1),
        **ScoredAnswers.score(texts[1], [[text] for text in texts[0]]).metrics(),
        **entity_scores(entity_counts(*names).values()),
        **{
            name: value
            for name, value in zip(
                NAMES, retrieval_scores([(similarities, 0.0)], [[0]])[0].tolist(), strict=True
            )
            if name != "accuracy"
        },
        "average_precision": pairs["average_precision"],
        **dict(
            zip(RANKING_NAMES, ranking_scores([(many, 0.0)], [{149: 1}])[0].tolist(), strict=True)
        ),
        **{k: v for k, v in likelihood_metrics(nats, 0, 6, 6).items() if k != "accuracy"},
    }


def test_the_table_says_which_side_is_better() -> None:
    good, bad = metrics_of(LABELS), metrics_of(np.array([1, 1, 1, 0, 0, 0]))
    lower = [name for name in good if good[name] < bad[name]]
    # Metrics that users select have tests of their own (test_generated_texts.py).
    computed = [spec for spec in METRICS if not spec.metric]
    declared = [spec.name for spec in computed if not spec.greater_is_better]
    assert sorted(lower) == sorted(set(declared) - {"kl"})
    assert [name for name in good if good[name] == bad[name]] == []
    names = [spec.name for spec in computed]
    assert sorted(names) == sorted([*good, *TEACHER])


def test_metrics_that_compare_models_are_in_the_table() -> None:
    known = {metric.name for metric in METRICS}
    assert [(spec.name, set(spec.metrics) - known) for spec in built_in_tasks().values()] == [
        (spec.name, set()) for spec in built_in_tasks().values()
    ]
