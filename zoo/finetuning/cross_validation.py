"""Logistic regression on embeddings whose penalty is chosen on held-out rows, as SentEval does it.

SentEval (Conneau and Kiela 2018, arXiv:1803.05449) has two classifiers: one of PyTorch, trained by
Adam until its accuracy no longer improves, and scikit-learn's ``LogisticRegression``. This is the
second one (``usepytorch: False``): its loss has one minimum, so that the result depends on neither
batches nor a seed. Folds and strengths are those of SentEval's ``validation.py``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.errors import UsageError
from zoo.finetuning.logistic_regression import LinearClassifier, fit, fit_strengths
from zoo.metrics.classification import accuracy

Vectors = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]
Score = Callable[[NDArray[Any], NDArray[Any]], float]

SEED = 1111  # SentEval's.
FOLDS = 10
# ``C`` of scikit-learn: inverse strengths of the penalty, from the strongest on.
NESTED_STRENGTHS = tuple(2.0**power for power in range(-2, 4))  # And of a validation set.
STRENGTHS = tuple(2.0**power for power in range(-1, 6))
DECIMALS = 2  # Of percentages, which SentEval rounds before it takes the best.


@dataclass(frozen=True)
class Selection:
    """The strength that is best on held-out rows."""

    c: float
    score: float  # Of the held-out rows, from 0 to 1.


def stratified_folds(labels: Labels, folds: int = FOLDS, seed: int = SEED) -> Labels:
    """Return the fold of each row, (rows,), as ``StratifiedKFold(shuffle=True)`` of scikit-learn.

    Each fold has about the same share of each class. SentEval draws from NumPy's ``RandomState``.

    Args:
        labels: the class of each row, (rows,).
        folds: number of folds.
        seed: seed of the shuffle.

    Raises:
        UsageError: no class has as many rows as there are folds.
    """
    _, first_rows, inverse = np.unique(labels, return_index=True, return_inverse=True)
    # Classes are numbered in the order of their first rows.
    ranks = np.argsort(np.argsort(first_rows))
    classes = ranks[inverse]
    counts = np.bincount(classes)
    if counts.max() < folds:
        raise UsageError(
            f"{folds} folds need a class with {folds} texts, and the largest has {counts.max()}",
            "give the full data set",
        )
    sorted_classes = np.sort(classes)
    sizes = []
    for fold in range(folds):
        sizes.append(np.bincount(sorted_classes[fold::folds], minlength=len(counts)))
    random = np.random.RandomState(seed)
    result = np.empty(len(labels), np.int64)
    for number in range(len(counts)):
        class_folds = np.arange(folds).repeat([size[number] for size in sizes])
        random.shuffle(class_folds)
        result[classes == number] = class_folds
    return result


def predict(classifier: LinearClassifier, vectors: Vectors) -> Labels:
    """Return the most probable class of each row, (rows,)."""
    best: Labels = classifier.logits(vectors).argmax(1)
    return best


def select_by_folds(
    vectors: Vectors,
    labels: Labels,
    classes: int,
    strengths: Sequence[float] = STRENGTHS,
    *,
    folds: int = FOLDS,
    score: Score = accuracy,
) -> Selection:
    """Return the strength with the best mean score over folds; of equal ones the first.

    Args:
        vectors: features, (rows, width).
        labels: the class of each row, (rows,).
        classes: number of classes.
        strengths: values of ``C`` to try.
        folds: number of folds.
        score: score of predictions, given them and the labels, (n,) each.
    """
    fold_numbers = stratified_folds(labels, folds)
    scores = np.empty((folds, len(strengths)))
    for fold in range(folds):
        is_held_out = fold_numbers == fold
        classifiers = fit_strengths(vectors[~is_held_out], labels[~is_held_out], classes, strengths)
        for number, classifier in enumerate(classifiers):
            predictions = predict(classifier, vectors[is_held_out])
            scores[fold, number] = score(predictions, labels[is_held_out])
    return _best(strengths, scores.mean(0).tolist())


def select_by_validation(
    train: tuple[Vectors, Labels],
    validation: tuple[Vectors, Labels],
    classes: int,
    strengths: Sequence[float] = NESTED_STRENGTHS,
) -> Selection:
    """Return the strength with the best accuracy on a validation set; see ``select_by_folds``."""
    scores = []
    for classifier in fit_strengths(*train, classes, strengths):
        scores.append(accuracy(predict(classifier, validation[0]), validation[1]))
    return _best(strengths, scores)


def nested_accuracy(vectors: Vectors, labels: Labels, classes: int, *, folds: int = FOLDS) -> float:
    """Return the mean accuracy over folds, of classifiers whose strength was chosen by folds.

    The strength of each fold is chosen on the other ones, by cross-validation within them.
    """
    fold_numbers = stratified_folds(labels, folds)
    accuracies = []
    for fold in range(folds):
        is_held_out = fold_numbers == fold
        train_vectors = vectors[~is_held_out]
        train_labels = labels[~is_held_out]
        selection = select_by_folds(
            train_vectors, train_labels, classes, NESTED_STRENGTHS, folds=folds
        )
        classifier = fit(train_vectors, train_labels, classes, selection.c)
        predictions = predict(classifier, vectors[is_held_out])
        accuracies.append(accuracy(predictions, labels[is_held_out]))
    return float(np.mean(accuracies))


def pair_features(first: Vectors, second: Vectors) -> Vectors:
    """Return the features of pairs, (n, 2 * width): |u - v| and u * v (Tai et al. 2015)."""
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def _best(strengths: Sequence[float], scores: Sequence[float]) -> Selection:
    percentages = [round(100 * score, DECIMALS) for score in scores]
    best = percentages.index(max(percentages))
    return Selection(strengths[best], scores[best])
