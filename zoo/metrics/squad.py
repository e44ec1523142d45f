"""Exact match and F1 of answers, as the evaluation scripts of SQuAD 1.1 and 2.0 compute them."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Return a text in lower case without punctuation, articles and extra white space."""
    plain = text.lower().translate(PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", plain).split())


def token_f1(prediction: str, answer: str, *, empty: bool) -> float:
    """Return the F1 of the words of a prediction, in any order."""
    predicted = normalize_answer(prediction).split()
    actual = normalize_answer(answer).split()
    # two texts without words match in the script of 2.0; the script of 1.1 finds no common word
    if empty and not (predicted and actual):
        return float(predicted == actual)
    common = sum((Counter(predicted) & Counter(actual)).values())
    return 2 * common / (len(predicted) + len(actual)) if common else 0.0


def answer_scores(
    prediction: str, answers: Sequence[str], *, unanswerable: bool
) -> tuple[float, float]:
    """Return exact match and F1 of a prediction, each the best over the correct answers."""
    # An empty prediction means no answer. Data with unanswerable questions follow the script of 2.0
    if unanswerable:  # that script leaves out answers that are empty when normalized
        answers = [text for text in answers if normalize_answer(text)] or [""]
    normal = normalize_answer(prediction)
    exact = max(float(normal == normalize_answer(text)) for text in answers)
    return exact, max(token_f1(prediction, text, empty=unanswerable) for text in answers)


@dataclass(frozen=True)
class ScoredAnswers:
    """Scores of predictions, (questions,) each."""

    exact: Floats
    f1: Floats
    answerable: NDArray[np.bool_]  # whether the question has an answer

    @classmethod
    def score(cls, predictions: Sequence[str], answers: Sequence[Sequence[str]]) -> "ScoredAnswers":
        """Score predictions, empty for no answer, by the correct answers of each question."""
        answerable = np.array([bool(texts) for texts in answers])
        unanswerable = not answerable.all()
        pairs = zip(predictions, answers, strict=True)
        scores = [answer_scores(text, texts, unanswerable=unanswerable) for text, texts in pairs]
        exact, f1 = np.array(scores).T
        return cls(exact, f1, answerable)

    def metrics(self, rows: NDArray[np.integer[Any]] | None = None) -> dict[str, float]:
        """Return means over the questions of some rows, (n,), or over all; from 0 to 1."""
        # If some questions have no answers, there are also means over the questions with answers
        # and over the rest. A mean over no question is 0
        rows = np.arange(len(self.exact)) if rows is None else rows
        exact = self.exact[rows]
        f1 = self.f1[rows]
        answerable = self.answerable[rows]
        parts = {"": np.ones(len(rows), bool)}
        if not self.answerable.all():
            parts |= {"has_answer_": answerable, "no_answer_": ~answerable}
        return {
            f"{prefix}{name}": float(values[part].mean()) if part.any() else 0.0
            for prefix, part in parts.items()
            for name, values in (("exact_match", exact), ("f1", f1))
        }


def best_threshold(
    scores: Floats, null_scores: Floats, answerable: NDArray[np.bool_], answered: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the highest mean score over all thresholds of no answer, and that threshold."""
    # As ``find_best_thresh`` in the script of 2.0: a question is not answered if its score of no
    # answer is above the threshold. ``scores`` are exact match or F1 of the best spans, never of no
    # answer, and ``answered`` tells whether there is a span, (questions,) each
    order = np.argsort(null_scores, kind="stable")
    gains = np.where(answerable, scores, -1.0 * answered)[order]  # of an answer instead of none
    totals = np.concatenate([[0.0], gains.cumsum()]) + (~answerable).sum()
    best = int(totals.argmax())
    ordered = null_scores[order]
    threshold = ordered[best - 1] if best else ordered[0] - 1.0
    return float(totals[best] / len(scores)), float(threshold)
