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
    # Two texts without words match in the script of 2.0; the script of 1.1 finds no common word.
    if empty and not (predicted and actual):
        return float(predicted == actual)
    common_words = Counter(predicted) & Counter(actual)
    common = common_words.total()
    if not common:
        return 0.0
    return 2 * common / (len(predicted) + len(actual))


def answer_scores(
    prediction: str, answers: Sequence[str], *, unanswerable: bool
) -> tuple[float, float]:
    """Return exact match and F1 of a prediction, each the best over the correct answers.

    An empty prediction means no answer. Data with unanswerable questions follow the script of 2.0.
    """
    if unanswerable:
        # The script leaves out answers that are empty when normalized.
        answers = [text for text in answers if normalize_answer(text)]
        if not answers:
            answers = [""]
    normalized = normalize_answer(prediction)
    exact = max(float(normalized == normalize_answer(text)) for text in answers)
    f1 = max(token_f1(prediction, text, empty=unanswerable) for text in answers)
    return exact, f1


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
        scores = []
        for prediction, texts in zip(predictions, answers, strict=True):
            scores.append(answer_scores(prediction, texts, unanswerable=unanswerable))
        exact, f1 = np.array(scores).T
        return cls(exact, f1, answerable)

    def metrics(self, rows: NDArray[np.integer[Any]] | None = None) -> dict[str, float]:
        """Return means over the questions of some rows, (n,), or over all; from 0 to 1.

        If some questions have no answers, there are also means over the questions with answers and
        over the others. A mean over no question is 0.
        """
        if rows is None:
            rows = np.arange(len(self.exact))
        exact = self.exact[rows]
        f1 = self.f1[rows]
        answerable = self.answerable[rows]
        groups = {"": np.ones(len(rows), bool)}
        if not self.answerable.all():
            groups["has_answer_"] = answerable
            groups["no_answer_"] = ~answerable
        metrics = {}
        for prefix, is_member in groups.items():
            has_questions = is_member.any()
            metrics[f"{prefix}exact_match"] = (
                float(exact[is_member].mean()) if has_questions else 0.0
            )
            metrics[f"{prefix}f1"] = float(f1[is_member].mean()) if has_questions else 0.0
        return metrics


def best_threshold(
    scores: Floats, null_scores: Floats, answerable: NDArray[np.bool_], answered: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the highest mean score over all thresholds of no answer, and that threshold.

    As ``find_best_thresh`` in the script of 2.0: a question is not answered if its score of no
    answer is above the threshold.

    Args:
        scores: exact match or F1 of the best spans, never of no answer, (questions,).
        null_scores: scores of no answer, (questions,).
        answerable: whether a question has an answer, (questions,).
        answered: whether there is a span, (questions,).
    """
    order = np.argsort(null_scores, kind="stable")
    # The gain is what an answer adds to the score of no answer.
    gains = np.where(answerable, scores, -1.0 * answered)[order]
    totals = np.concatenate([[0.0], gains.cumsum()]) + (~answerable).sum()
    best = int(totals.argmax())
    sorted_null_scores = null_scores[order]
    if best == 0:
        threshold = sorted_null_scores[0] - 1.0
    else:
        threshold = sorted_null_scores[best - 1]
    return float(totals[best] / len(scores)), float(threshold)
