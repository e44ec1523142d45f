"""Metrics against scikit-learn and SciPy, and intervals against plain resampling."""

import numpy as np
import pytest
from numpy.typing import NDArray

from zoo.evaluation.metrics import (
    bootstrap_classification,
    bootstrap_samples,
    class_scores,
    classification_metrics,
    confusion_matrix,
    matthews_correlation,
    mean_ranks,
    multi_label_metrics,
    pearson,
    reliability,
    spearman,
)

Ints = NDArray[np.int64]


def drawn(classes: int, count: int = 200) -> tuple[Ints, Ints]:
    rng = np.random.default_rng(classes)
    labels = rng.integers(classes, size=count)
    noise = rng.integers(classes, size=count)
    return labels, np.where(rng.random(count) < 0.6, labels, noise)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_classification_equals_scikit_learn(classes: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    labels, predictions = drawn(classes)
    confusion = confusion_matrix(labels, predictions, classes)
    np.testing.assert_array_equal(confusion, metrics.confusion_matrix(labels, predictions))
    ours = {name: float(value) for name, value in classification_metrics(confusion).items()}
    average = "binary" if classes == 2 else "macro"
    assert ours == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(labels, predictions),
            "f1" if classes == 2 else "f1_macro": metrics.f1_score(
                labels, predictions, average=average
            ),
            "matthews_correlation": metrics.matthews_corrcoef(labels, predictions),
        },
        abs=1e-12,
    )
    scores = metrics.precision_recall_fscore_support(labels, predictions)
    for name, expected in zip(("precision", "recall", "f1"), scores[:3], strict=True):
        np.testing.assert_allclose(class_scores(confusion)[name], expected, atol=1e-12)


def test_classification_by_hand() -> None:
    """3 true positives, 1 false positive, 2 false negatives, 4 true negatives."""
    confusion = np.array([[4, 1], [2, 3]])
    ours = {name: float(value) for name, value in classification_metrics(confusion).items()}
    matthews = (3 * 4 - 1 * 2) / np.sqrt((3 + 1) * (3 + 2) * (4 + 1) * (4 + 2))
    assert ours == pytest.approx(
        {"accuracy": 0.7, "f1": 2 * 3 / (2 * 3 + 1 + 2), "matthews_correlation": matthews}
    )


def test_calibration_by_hand() -> None:
    """Bins (0.4, 0.6] and (0.8, 1] of five: |1/2 - 0.55| * 2 / 5 + |2/3 - 0.9| * 3 / 5."""
    confidences = np.array([0.5, 0.6, 0.85, 0.85, 1.0])
    correct = np.array([True, False, True, False, True])
    error, points = reliability(confidences, correct, bins=5)
    assert error == pytest.approx(0.05 * 2 / 5 + abs(2 / 3 - 0.9) * 3 / 5)
    assert [point["samples"] for point in points] == [2, 3]
    assert points[0] == pytest.approx({"confidence": 0.55, "accuracy": 0.5, "samples": 2})


def test_constant_predictions_have_no_correlation() -> None:
    assert float(matthews_correlation(np.array([[3, 0], [4, 0]]))) == 0.0
    assert np.isnan(pearson(np.ones(4), np.arange(4.0)))


def test_correlations_equal_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    first = rng.integers(5, size=50).astype(float)  # with ties
    second = first + rng.normal(size=50)
    assert pearson(first, second) == pytest.approx(stats.pearsonr(first, second)[0], abs=1e-12)
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second)[0], abs=1e-12)


def test_ranks_of_ties_are_their_mean() -> None:
    assert mean_ranks(np.array([5.0, 1.0, 5.0, 7.0])).tolist() == [2.5, 1.0, 2.5, 4.0]
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 8.0, 27.0])) == pytest.approx(1)


def test_several_labels_by_hand() -> None:
    predictions = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]], bool)
    labels = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0]], bool)
    assert multi_label_metrics(predictions, labels) == pytest.approx(
        {"f1_micro": 2 * 2 / (3 + 3), "f1_macro": (1 + 2 / 4 + 0) / 3, "exact_match": 1 / 3}
    )


def test_intervals_are_those_of_resampled_samples() -> None:
    labels, predictions = drawn(2, 300)
    confusion = confusion_matrix(labels, predictions, 2)
    fast = bootstrap_classification(confusion, seed=0, resamples=4000)
    plain = bootstrap_samples(
        lambda rows: {
            name: float(value)
            for name, value in classification_metrics(
                confusion_matrix(labels[rows], predictions[rows], 2)
            ).items()
        },
        300,
        seed=1,
        resamples=4000,
    )
    for name, (low, high) in plain.items():
        assert fast[name] == pytest.approx((low, high), abs=0.01)
        assert low < float(classification_metrics(confusion)[name]) < high
    assert fast == bootstrap_classification(confusion, seed=0, resamples=4000)
