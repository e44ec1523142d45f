"""Folds, strengths and accuracies of classifiers on embeddings, compared with scikit-learn.

SentEval's procedures are written down here as its validation.py has them, with scikit-learn.
"""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from zoo.errors import UsageError
from zoo.finetuning.cross_validation import (
    NESTED_STRENGTHS,
    STRENGTHS,
    nested_accuracy,
    pair_features,
    select_by_folds,
    select_by_validation,
    stratified_folds,
)

SEED = 1111


def data(classes: int, rows: int = 60) -> tuple[Any, Any]:
    rng = np.random.default_rng(classes)
    labels = rng.integers(classes, size=rows)
    vectors = rng.standard_normal((rows, 4)) + 0.8 * np.eye(classes, 4)[labels]
    return vectors.astype(np.float32), labels


def regression(c: float) -> LogisticRegression:
    return LogisticRegression(C=c, solver="newton-cholesky", tol=1e-9, max_iter=100)


def splits(count: int) -> StratifiedKFold:
    return StratifiedKFold(n_splits=count, shuffle=True, random_state=SEED)


def best_strength(vectors: Any, labels: Any, strengths: Any, count: int) -> tuple[float, float]:
    scores = []
    for c in strengths:
        fold_scores = []
        for train, test in splits(count).split(vectors, labels):
            classifier = regression(c).fit(vectors[train].astype(np.float64), labels[train])
            fold_scores.append(classifier.score(vectors[test], labels[test]))
        scores.append(round(100 * np.mean(fold_scores), 2))
    best = int(np.argmax(scores))
    return strengths[best], scores[best]


@pytest.mark.parametrize(("classes", "count"), [(2, 10), (3, 5), (6, 4)])
def test_folds_are_those_of_scikit_learn(classes: int, count: int) -> None:
    labels = np.random.default_rng(7).integers(classes, size=83)
    folds = stratified_folds(labels, count)
    expected = np.empty_like(folds)
    for number, (_, test) in enumerate(splits(count).split(labels, labels)):
        expected[test] = number
    np.testing.assert_array_equal(folds, expected)


def test_folds_of_too_few_texts() -> None:
    with pytest.raises(UsageError, match="10 folds need a class with 10 texts, and the largest"):
        stratified_folds(np.array([0, 1] * 9))


@pytest.mark.parametrize("classes", [2, 3])
def test_the_strength_that_folds_choose(classes: int) -> None:
    vectors, labels = data(classes)
    selection = select_by_folds(vectors, labels, classes, folds=4)
    c, score = best_strength(vectors, labels, STRENGTHS, 4)
    assert selection.c == c
    assert 100 * selection.score == pytest.approx(score, abs=0.005)


def test_the_strength_that_a_validation_set_chooses() -> None:
    vectors, labels = data(3, 120)
    train, validation = slice(0, 60), slice(60, 120)
    selection = select_by_validation(
        (vectors[train], labels[train]), (vectors[validation], labels[validation]), 3
    )
    scores = []
    for c in NESTED_STRENGTHS:
        classifier = regression(c).fit(vectors[train].astype(np.float64), labels[train])
        scores.append(classifier.score(vectors[validation], labels[validation]))
    assert selection.c == NESTED_STRENGTHS[int(np.argmax(scores))]
    assert selection.score == pytest.approx(max(scores))


def test_nested_folds() -> None:
    vectors, labels = data(2)
    scores = []
    for train, test in splits(3).split(vectors, labels):
        c, _ = best_strength(vectors[train], labels[train], NESTED_STRENGTHS, 3)
        classifier = regression(c).fit(vectors[train].astype(np.float64), labels[train])
        scores.append(classifier.score(vectors[test], labels[test]))
    assert nested_accuracy(vectors, labels, 2, folds=3) == pytest.approx(np.mean(scores))


def test_features_of_pairs() -> None:
    first, second = np.array([[1.0, -2.0]]), np.array([[3.0, 4.0]])
    np.testing.assert_array_equal(pair_features(first, second), [[2, 6, 3, -8]])
