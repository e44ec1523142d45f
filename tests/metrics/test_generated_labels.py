"""Metrics of generated labels against scikit-learn and SciPy."""

import numpy as np
import pytest

from zoo.metrics.generated_labels import NO_NUMBER, number_metrics, number_of, word_metrics

LABELS = np.array([0, 0, 1, 1, 1, 0])
ANSWERS = np.array([0, -1, 1, -1, 0, 1])  # -1: no word of a label


def test_an_unknown_answer_is_wrong() -> None:
    """F1 has the other label (``f1_score_with_invalid`` of T5), the correlation another class."""
    metrics = pytest.importorskip("sklearn.metrics")
    wrong = np.array([0, 1, 1, 0, 0, 1])
    names = ("accuracy", "f1", "matthews_correlation")
    assert word_metrics(names, ANSWERS, LABELS, 2) == pytest.approx(
        {
            "accuracy": 2 / 6,
            "f1": metrics.f1_score(LABELS, wrong),
            "matthews_correlation": metrics.matthews_corrcoef(LABELS, ANSWERS),
        }
    )


def test_answers_that_are_all_unknown_are_not_correlated() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    answers = np.full(6, -1)
    assert metrics.matthews_corrcoef(LABELS, answers) == 0
    assert word_metrics(("matthews_correlation",), answers, LABELS, 2) == {
        "matthews_correlation": 0
    }


def test_an_unknown_answer_among_three_labels_is_wrong() -> None:
    labels, answers = np.array([0, 1, 2, 2]), np.array([-1, -1, -1, 2])
    assert word_metrics(("accuracy",), answers, labels, 3) == {"accuracy": 0.25}


def test_texts_that_are_no_numbers() -> None:
    stats = pytest.importorskip("scipy.stats")
    texts, labels = (
        ["3.2", "", "many", " 1 ", "nan", "inf"],
        np.array([3.0, 2.0, 1.0, 0.5, 4.0, 5.0]),
    )
    numbers = [number_of(text) for text in texts]
    assert numbers == [3.2, NO_NUMBER, NO_NUMBER, 1.0, NO_NUMBER, NO_NUMBER]
    assert number_metrics(("pearson", "spearman"), np.array(numbers), labels) == pytest.approx(
        {
            "pearson": stats.pearsonr(numbers, labels)[0],
            "spearman": stats.spearmanr(numbers, labels)[0],
        }
    )
