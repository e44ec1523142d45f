"""Metrics of classifiers against scikit-learn, and worked by hand."""

import numpy as np
import pytest

from tests.metrics.drawn import drawn
from zoo.metrics.classification import (
    ClassCounts,
    accuracy,
    class_scores,
    classification_metrics,
    confusion_cells,
    matthews_correlation,
    multi_label_metrics,
    reliability,
)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_classification_equals_scikit_learn(classes: int) -> None:
    reference = pytest.importorskip("sklearn.metrics")
    labels, predictions = drawn(classes)
    counts, cells = ClassCounts.of(labels, predictions, classes), np.zeros((classes, classes))
    for label, prediction, number in confusion_cells(labels, predictions):
        cells[label, prediction] = number
    assert cells.tolist() == reference.confusion_matrix(labels, predictions).tolist()
    ours = {name: float(value) for name, value in classification_metrics(counts).items()}
    assert accuracy(predictions, labels) == ours["accuracy"]
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


@pytest.mark.parametrize("predicted", [[0, 1, 1, 1, 0], [0, 1, 3, 1, 0], [3, 3, 3, 3, 3]])
def test_the_mean_over_classes_is_of_those_with_samples_or_predictions(
    predicted: list[int],
) -> None:
    """As in scikit-learn; class 2 has neither, and class 3 has predictions at most."""
    metrics = pytest.importorskip("sklearn.metrics")
    actual = np.array([0, 0, 1, 1, 1])
    counts = ClassCounts.of(actual, np.array(predicted), 4)
    expected = metrics.f1_score(actual, predicted, average="macro", zero_division=0)
    assert classification_metrics(counts)["f1_macro"] == pytest.approx(expected)
    stacked = classification_metrics(ClassCounts(*(np.stack([c, c]) for c in counts)))["f1_macro"]
    assert stacked[0] == pytest.approx(expected)


def test_the_mean_over_several_labels_is_of_all() -> None:
    """As in scikit-learn for indicators."""
    metrics = pytest.importorskip("sklearn.metrics")
    actual = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0]], bool)
    predicted = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0]], bool)
    expected = metrics.f1_score(actual, predicted, average="macro", zero_division=0)
    assert multi_label_metrics(predicted, actual)["f1_macro"] == pytest.approx(expected)


def test_several_labels_by_hand() -> None:
    predictions = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]], bool)
    labels = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0]], bool)
    assert multi_label_metrics(predictions, labels) == pytest.approx(
        {"f1_micro": 2 * 2 / (3 + 3), "f1_macro": (1 + 2 / 4 + 0) / 3, "exact_match": 1 / 3}
    )


def test_calibration_by_hand() -> None:
    """Bins (0.4, 0.6] and (0.8, 1] of five: |1/2 - 0.55| * 2 / 5 + |2/3 - 0.9| * 3 / 5."""
    confidences = np.array([0.5, 0.6, 0.85, 0.85, 1.0])
    correct = np.array([True, False, True, False, True])
    error, points = reliability(confidences, correct, bins=5)
    assert error == pytest.approx(0.05 * 2 / 5 + abs(2 / 3 - 0.9) * 3 / 5)
    assert [point["samples"] for point in points] == [2, 3]
    assert points[0] == pytest.approx({"confidence": 0.55, "accuracy": 0.5, "samples": 2})


def test_the_correlation_of_constant_predictions_is_zero() -> None:
    assert float(matthews_correlation(ClassCounts(*map(np.array, ([3, 0], [7, 0], [3, 4]))))) == 0.0
