"""Embeddings by sentence-transformers and classifiers of scikit-learn, as references.

The procedures are those of SentEval's ``validation.py`` with ``usepytorch: False``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from tests.tasks.sentence_embedding.making import library_encoder

SEED = 1111
NESTED = [2.0**power for power in range(-2, 4)]
FOLDED = [2.0**power for power in range(-1, 6)]


class Reference:
    """Embeddings of sentence-transformers."""

    def __init__(self, source: Path) -> None:
        self.encoder = library_encoder(source).eval()

    def embed(self, texts: Sequence[str]) -> Any:
        """Return the embeddings of texts, float64, (texts, width)."""
        return np.asarray(self.encoder.encode(list(texts)), np.float64)

    def cosines(self, first: Sequence[str], second: Sequence[str]) -> Any:
        """Return the cosine of each pair, (pairs,)."""
        a, b = self.embed(first), self.embed(second)
        return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def split_words(text: str) -> str:
    """Return a text as SentEval's batchers get it: split at white space."""
    return " ".join(text.split())


def by_length(rows: Sequence[tuple[str, int]]) -> tuple[list[str], Any]:
    """Return texts and labels in SentEval's order."""
    ordered = sorted(rows, key=lambda row: (len(row[0].split()), row[1]))
    return [text for text, _ in ordered], np.array([label for _, label in ordered])


def regression(vectors: Any, labels: Any, c: float) -> LogisticRegression:
    model = LogisticRegression(C=c, solver="newton-cholesky", tol=1e-9, max_iter=100)
    return model.fit(vectors, labels)


def folds(count: int) -> StratifiedKFold:
    return StratifiedKFold(n_splits=count, shuffle=True, random_state=SEED)


def best_of_folds(
    vectors: Any, labels: Any, strengths: Sequence[float], count: int, score: Any = None
) -> float:
    """Return the strength with the best mean score over folds."""
    scores = []
    for c in strengths:
        fold_scores = []
        for train, test in folds(count).split(vectors, labels):
            classifier = regression(vectors[train], labels[train], c)
            if score is None:
                fold_scores.append(classifier.score(vectors[test], labels[test]))
            else:
                fold_scores.append(score(labels[test], classifier.predict(vectors[test])))
        scores.append(round(100 * np.mean(fold_scores), 2))
    return strengths[int(np.argmax(scores))]


def nested(vectors: Any, labels: Any, count: int = 10) -> float:
    """Return the accuracy by folds within folds."""
    scores = []
    for train, test in folds(count).split(vectors, labels):
        c = best_of_folds(vectors[train], labels[train], NESTED, count)
        classifier = regression(vectors[train], labels[train], c)
        scores.append(classifier.score(vectors[test], labels[test]))
    return float(np.mean(scores))


def validated(train: Any, validation: Any, test: Any) -> float:
    """Return the accuracy of the strength that is best on a validation set."""
    scores = []
    for c in NESTED:
        classifier = regression(train[0], train[1], c)
        scores.append(round(100 * classifier.score(*validation), 2))
    best = NESTED[int(np.argmax(scores))]
    return float(regression(train[0], train[1], best).score(*test))
