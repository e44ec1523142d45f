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
    """Return the F1 of the words of a prediction, without regard to their order.

    Args:
        prediction: the prediction.
        answer: the correct answer.
        empty: two texts without words are equal, as in the script of 2.0; in that of 1.1 they have
            no word in common.
    """
    predicted, actual = normalize_answer(prediction).split(), normalize_answer(answer).split()
    if empty and not (predicted and actual):
        return float(predicted == actual)
    common = sum((Counter(predicted) & Counter(actual)).values())
    return 2 * common / (len(predicted) + len(actual)) if common else 0.0


def answer_scores(
    prediction: str, answers: Sequence[str], *, unanswerable: bool
) -> tuple[float, float]:
    """Return exact match and F1 of a prediction, each the best over the correct answers.

    Args:
        prediction: the prediction; empty for no answer.
        answers: the correct answers; empty if there are none.
        unanswerable: the data has questions without answers, and is scored as by the script of
            2.0, which leaves out answers that are empty when they are normalized.
    """
    if unanswerable:
        answers = [text for text in answers if normalize_answer(text)] or [""]
    normal = normalize_answer(prediction)
    exact = max(float(normal == normalize_answer(text)) for text in answers)
    return exact, max(token_f1(prediction, text, empty=unanswerable) for text in answers)


@dataclass(frozen=True)
class ScoredAnswers:
    """Scores of the predictions for the questions of a data set.

    Attributes:
        exact: exact match of each question, (questions,).
        f1: F1 of each question, (questions,).
        answerable: whether the question has an answer, (questions,).
    """

    exact: Floats
    f1: Floats
    answerable: NDArray[np.bool_]

    @classmethod
    def score(cls, predictions: Sequence[str], answers: Sequence[Sequence[str]]) -> "ScoredAnswers":
        """Score predictions.

        Args:
            predictions: text for each question; empty for no answer.
            answers: correct answers of each question.
        """
        answerable = np.array([bool(texts) for texts in answers])
        unanswerable = not answerable.all()
        pairs = zip(predictions, answers, strict=True)
        scores = [answer_scores(text, texts, unanswerable=unanswerable) for text, texts in pairs]
        exact, f1 = np.array(scores).T
        return cls(exact, f1, answerable)

    def metrics(self, rows: NDArray[np.integer[Any]] | None = None) -> dict[str, float]:
        """Return means over questions, from 0 to 1.

        If some questions have no answers, also over those with answers and those without; a mean
        over no question is 0.

        Args:
            rows: indices of questions, (n,); ``None`` for all.
        """
        rows = np.arange(len(self.exact)) if rows is None else rows
        exact, f1, answerable = self.exact[rows], self.f1[rows], self.answerable[rows]
        parts = {"": np.ones(len(rows), bool)}
        if not self.answerable.all():
            parts |= {"has_answer_": answerable, "no_answer_": ~answerable}
        return {
            f"{prefix}{name}": float(values[part].mean()) if part.any() else 0.0
            for prefix, part in parts.items()
            for name, values in (("exact_match", exact), ("f1", f1))
        }


def best_threshold(
    scores: Floats,
    null_scores: Floats,
    answerable: NDArray[np.bool_],
    answered: NDArray[np.bool_],
) -> tuple[float, float]:
    """Return the highest mean score over all thresholds of no answer, and that threshold.

    As ``find_best_thresh`` of the script of 2.0: a question has no answer if its score of no answer
    is above the threshold.

    Args:
        scores: exact match or F1 of the best spans, never of no answer, (questions,).
        null_scores: scores of no answer, (questions,).
        answerable: whether the question has an answer, (questions,).
        answered: whether there is a best span, (questions,).
    """
    order = np.argsort(null_scores, kind="stable")
    gains = np.where(answerable, scores, -1.0 * answered)[order]  # of an answer instead of none
    totals = np.concatenate([[0.0], gains.cumsum()]) + (~answerable).sum()
    best = int(totals.argmax())
    ordered = null_scores[order]
    threshold = ordered[best - 1] if best else ordered[0] - 1.0
    return float(totals[best] / len(scores)), float(threshold)
