"""Exact match, F1 and thresholds of answers, against the evaluation scripts of SQuAD.

The functions of the references are those of evaluate-v1.1.py and evaluate-v2.0.py, as released.
"""

import collections
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import warm
from tests.evaluation.conftest import Small
from tests.tasks.question_answering.making import normalized, raw_scores, soft, words
from zoo.api import Model
from zoo.errors import UsageError
from zoo.metrics.squad import ScoredAnswers, best_threshold, normalize_answer
from zoo.tasks import make_evaluation

__all__ = ["soft"]
TASK = "question-answering"
TEXTS = ["", "the", "The cat", "a cat.", "cat", "cat cat", "dog, cat", "dog", "an", "!", "Tha t"]


def f1_of_first_script(prediction: str, ground_truth: str) -> float:
    prediction_tokens = normalized(prediction).split()
    ground_truth_tokens = normalized(ground_truth).split()
    common = collections.Counter(prediction_tokens) & collections.Counter(ground_truth_tokens)
    num_same = sum(common.values())
    if num_same == 0:
        return 0
    precision = 1.0 * num_same / len(prediction_tokens)
    recall = 1.0 * num_same / len(ground_truth_tokens)
    return (2 * precision * recall) / (precision + recall)


def reference_threshold(
    preds: list[str], scores: list[float], na_probs: list[float], has_ans: list[bool]
) -> tuple[float, float | None]:
    """As ``find_best_thresh`` of the second script, with ``None`` for no question answered."""
    cur_score: float = sum(1 for k in has_ans if not k)
    best_score, best_thresh = cur_score, None
    for k in sorted(range(len(preds)), key=lambda k: na_probs[k]):
        diff = scores[k] if has_ans[k] else (-1 if preds[k] else 0)
        cur_score += diff
        if cur_score > best_score:
            best_score, best_thresh = cur_score, na_probs[k]
    return best_score / len(scores), best_thresh


def cases(unanswerable: bool, seed: int, count: int = 200) -> tuple[list[str], list[list[str]]]:
    rng = random.Random(seed)
    predictions = [rng.choice(TEXTS) for _ in range(count)]
    fewest = 0 if unanswerable else 1
    return predictions, [rng.choices(TEXTS[1:], k=rng.randint(fewest, 3)) for _ in range(count)]


def test_normal_answers() -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choices("aAthe n.,-'\u00e9\u2028\t", k=12)) for _ in range(500)]
    assert [normalize_answer(t) for t in texts] == [normalized(t) for t in texts]


def test_scores_are_those_of_the_first_script() -> None:
    predictions, answers = cases(unanswerable=False, seed=1)
    scored = ScoredAnswers.score(predictions, answers)
    for k, (prediction, texts) in enumerate(zip(predictions, answers, strict=True)):
        assert scored.exact[k] == max(normalized(prediction) == normalized(t) for t in texts)
        assert scored.f1[k] == pytest.approx(max(f1_of_first_script(prediction, t) for t in texts))
    assert set(scored.metrics()) == {"exact_match", "f1"}


def test_scores_are_those_of_the_second_script() -> None:
    predictions, answers = cases(unanswerable=True, seed=2)
    exact, f1 = (np.array(values) for values in raw_scores(predictions, answers))
    scored = ScoredAnswers.score(predictions, answers)
    assert scored.exact.tolist() == exact.tolist()
    assert scored.f1.tolist() == pytest.approx(f1.tolist())
    has = np.array([bool(texts) for texts in answers])
    assert scored.metrics() == pytest.approx(
        {
            "exact_match": exact.mean(),
            "f1": f1.mean(),
            "has_answer_exact_match": exact[has].mean(),
            "has_answer_f1": f1[has].mean(),
            "no_answer_exact_match": exact[~has].mean(),
            "no_answer_f1": f1[~has].mean(),
        }
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_best_threshold_is_that_of_the_second_script(seed: int) -> None:
    predictions, answers = cases(unanswerable=True, seed=seed, count=30 - 9 * seed)
    rng = random.Random(seed)
    null_scores = [rng.choice([-1.5, -0.25, 0.5, 2.0, 3.0]) for _ in predictions]
    scored = ScoredAnswers.score(predictions, answers)
    answered = np.array([bool(text) for text in predictions])
    best, threshold = best_threshold(scored.f1, np.array(null_scores), scored.answerable, answered)
    expected = reference_threshold(
        predictions, scored.f1.tolist(), null_scores, scored.answerable.tolist()
    )
    assert best == pytest.approx(expected[0])
    if expected[1] is None:
        assert threshold < min(null_scores)
    else:
        assert threshold == expected[1]


def test_no_question_is_answered_where_that_is_best() -> None:
    answerable = np.array([False, False, True])
    null_scores, answered = np.array([1.0, 2.0, 3.0]), np.ones(3, bool)
    best, threshold = best_threshold(np.zeros(3), null_scores, answerable, answered)
    assert best == pytest.approx(2 / 3) and threshold < 1.0


def questions(path: Path, model: Model, unanswerable: bool) -> tuple[Path, list[tuple[str, str]]]:
    """Write questions, some of them with the model's own answers."""
    pairs = [("a b", words(12, 7)), ("c", words(60, 8)), ("who", words(30, 9)), ("d", words(9, 3))]
    predicted = model.answer(pairs, max_answer_len=30)
    rows = []
    for k, ((question, context), answer) in enumerate(zip(pairs, predicted, strict=True)):
        first = context.split()[0]
        span = (answer["answer"], answer["start"]) if k % 2 else (first, 0)
        texts, starts = ([], []) if unanswerable and k == 3 else ([span[0]], [span[1]])
        answers = {"text": texts, "answer_start": starts}
        rows.append({"question": question, "context": context, "answers": answers})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, pairs


@pytest.mark.by_default("True")
@pytest.mark.parametrize("unanswerable", [False, True])
def test_the_evaluation_scores_the_answers_of_run(
    soft: tuple[Model, Path], tmp_path: Path, unanswerable: bool
) -> None:
    model, _ = soft
    data, pairs = questions(tmp_path / "t.jsonl", model, unanswerable)
    options: dict[str, Any] = {"max_answer_len": 30, "handle_impossible_answer": unanswerable}
    texts = [result["answer"] for result in model.answer(pairs, **options)]
    answers = [json.loads(line)["answers"]["text"] for line in data.read_text().splitlines()]
    expected = ScoredAnswers.score(texts, answers).metrics()
    result = make_evaluation(TASK, model.checkpoint, model.session).evaluate([data])
    metrics = dict(result.metrics)
    assert metrics.pop("questions") == 4
    assert metrics == pytest.approx(expected) and metrics["exact_match"] > 0
    low, high = result.details["intervals"]["f1"]
    assert low <= metrics["f1"] <= high
    assert ("best" in result.details) == unanswerable


@pytest.mark.long
def test_the_best_threshold_has_the_score_that_is_reported(
    soft: tuple[Model, Path], tmp_path: Path
) -> None:
    """And a threshold of many digits below or above all scores answers all or nothing."""
    model, _ = soft
    data, pairs = questions(tmp_path / "t.jsonl", model, unanswerable=True)

    def f1(threshold: float) -> dict[str, float]:
        task = make_evaluation(TASK, model.checkpoint, model.session, null_threshold=threshold)
        return dict(task.evaluate([data]).metrics)

    details = make_evaluation(TASK, model.checkpoint, model.session).evaluate([data]).details
    assert f1(details["best"]["f1_threshold"])["f1"] == pytest.approx(details["best"]["f1"])
    assert f1(-1e4)["no_answer_f1"] == 1 and f1(-1e4)["has_answer_f1"] == 0
    assert f1(1e4)["no_answer_f1"] == 0
    options: dict[str, Any] = {"handle_impossible_answer": True, "null_threshold": -1e4, "top_k": 2}
    for result in model.answer(pairs, **options):
        assert result["answer"] == "" and result["predictions"][1]["answer"]


def test_the_command(soft: tuple[Model, Path], tmp_path: Path) -> None:
    model, _ = soft
    data, _ = questions(tmp_path / "t.jsonl", model, unanswerable=True)
    arguments = ("--task", TASK, "--eval", data, "--backend", "cpu", "--doc-stride", "8", "--json")
    done = warm.zoo("eval", model.checkpoint.path, *arguments)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert set(printed["best"]) == {"exact_match", "exact_match_threshold", "f1", "f1_threshold"}
    assert printed["doc_stride"] == 8


def test_other_heads_are_refused(small: Small) -> None:
    model, _ = small("BertModel")
    with pytest.raises(UsageError, match="and not answer; train the head question-answering by"):
        make_evaluation(TASK, model.checkpoint, model.session)
