"""Metrics against scikit-learn and SciPy, and intervals against plain resampling."""

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from zoo.evaluation import metrics
from zoo.evaluation.metrics import (
    ClassCounts,
    bootstrap_classification,
    bootstrap_samples,
    class_scores,
    classification_metrics,
    confusion_cells,
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
    reference = pytest.importorskip("sklearn.metrics")
    labels, predictions = drawn(classes)
    counts, cells = ClassCounts.of(labels, predictions, classes), np.zeros((classes, classes))
    for label, prediction, number in confusion_cells(labels, predictions):
        cells[label, prediction] = number
    assert cells.tolist() == reference.confusion_matrix(labels, predictions).tolist()
    ours = {name: float(value) for name, value in classification_metrics(counts).items()}
    average = "binary" if classes == 2 else "macro"
    assert ours == pytest.approx(
        {
            "accuracy": reference.accuracy_score(labels, predictions),
            "f1" if classes == 2 else "f1_macro": reference.f1_score(
                labels, predictions, average=average
            ),
            "matthews_correlation": reference.matthews_corrcoef(labels, predictions),
        },
        abs=1e-12,
    )
    scores = reference.precision_recall_fscore_support(labels, predictions)
    for name, expected in zip(("precision", "recall", "f1"), scores[:3], strict=True):
        np.testing.assert_allclose(class_scores(counts)[name], expected, atol=1e-12)


def test_classification_by_hand() -> None:
    """3 true positives, 1 false positive, 2 false negatives, 4 true negatives."""
    counts = ClassCounts(*map(np.array, ([4, 3], [6, 4], [5, 5])))
    ours = {name: float(value) for name, value in classification_metrics(counts).items()}
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
    assert float(matthews_correlation(ClassCounts(*map(np.array, ([3, 0], [7, 0], [3, 4]))))) == 0.0
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


@pytest.mark.parametrize("classes", [2, 5])
def test_intervals_are_those_of_resampled_samples(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, predictions = drawn(classes, 300)
    whole = classification_metrics(ClassCounts.of(labels, predictions, classes))
    cells = confusion_cells(labels, predictions)
    fast = bootstrap_classification(cells, classes, seed=0, resamples=4000)
    plain = bootstrap_samples(
        lambda rows: {
            name: float(value)
            for name, value in classification_metrics(
                ClassCounts.of(labels[rows], predictions[rows], classes)
            ).items()
        },
        300,
        seed=1,
        resamples=4000,
    )
    for name, (low, high) in plain.items():
        assert fast[name] == pytest.approx((low, high), abs=0.01)
        assert low < float(whole[name]) < high
    monkeypatch.setattr(metrics, "DRAWN", 100 * len(cells))  # 100 draws at a time
    assert fast == bootstrap_classification(cells, classes, seed=0, resamples=4000)


def test_intervals_of_many_labels_take_the_memory_of_the_samples() -> None:
    """3,000 labels squared are 9 million cells, of which 1,000 draws would take 72 GB."""
    classes = 3000
    labels = np.arange(2 * classes) % classes
    predictions = np.where(np.arange(2 * classes) % 3 == 0, (labels + 1) % classes, labels)
    tracemalloc.start()
    cells = confusion_cells(labels, predictions)
    intervals = bootstrap_classification(cells, classes, seed=0, resamples=200)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    low, high = intervals["accuracy"]
    assert low < 2 / 3 < high and high - low < 0.03
    assert peak < 40 * 8 * metrics.DRAWN / 8
