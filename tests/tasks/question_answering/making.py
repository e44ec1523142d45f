"""Questions in the layout of SQuAD, and answers that are worked by hand."""

import collections
import json
import random
import re
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from tests.checkpoints import VOCABULARY
from tests.finetuning.making import LETTERS, write_table
from tests.inference.conftest import Small, converted
from zoo.api import Model
from zoo.exporting.session import open_session

CONTEXT = "Grüße an the cat, the cat sat."


def squad(path: Path, *questions: dict[str, Any], context: str = CONTEXT) -> Path:
    """Write questions about a context in the format of SQuAD."""
    articles = [{"title": "x", "paragraphs": [{"context": context, "qas": list(questions)}]}]
    path.write_text(json.dumps({"version": "v2.0", "data": articles}))
    return path


def questions_about_letters(
    path: Path, count: int = 40, seed: int = 0, unanswerable: bool = False
) -> Path:
    """Write questions that are a letter; the answer is the word after it in the context."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        letter = rng.choice(LETTERS)
        others = [other for other in LETTERS if other != letter]
        words = rng.choices([*others, "ab", "ba"], k=rng.randint(3, 60))
        answers: dict[str, Any] = {"text": [], "answer_start": []}
        if not (unanswerable and number % 3 == 0):
            place = rng.randrange(len(words) - 1)
            words[place] = letter
            answers = {"text": [words[place + 1]]}
            answers["answer_start"] = [len(" ".join(words[: place + 1])) + 1]
        rows.append({"question": letter, "context": " ".join(words), "answers": answers})
    return write_table(path, rows)


Answers = list[dict[str, Any]]


def words(count: int, seed: int) -> str:
    """Return random words of one to three tokens, some of them repeated in another case."""
    rng = np.random.default_rng(seed)
    parts = [part.removeprefix("##") for part in VOCABULARY[5:]]
    picked = ["".join(rng.choice(parts, rng.integers(1, 4))) for _ in range(count)]
    return " ".join(word.upper() if rng.random() < 0.2 else word for word in picked)


def characters(encoded: Any, window: int, first: int, last: int, text: int = 1) -> tuple[int, int]:
    start, end = encoded.token_to_word(window, first), encoded.token_to_word(window, last)
    begin = encoded.word_to_chars(window, start, sequence_index=text).start
    return begin, encoded.word_to_chars(window, end, sequence_index=text).end


def add(answers: Answers, text: str, score: float, start: int, end: int) -> None:
    """Add an answer, or its score to that of an equal one."""
    for answer in answers:
        if answer["answer"].lower() == text.lower():
            answer["score"] += score
            return
    answers.append({"answer": text, "score": score, "start": start, "end": end})


def assert_same(results: Answers, expected: Answers) -> None:
    assert len(results) == len(expected)
    for result, answer in zip(results, expected, strict=True):
        assert result["score"] == pytest.approx(answer["score"], abs=1e-4)
        for key in ("answer", "start", "end"):
            assert result[key] == answer[key], (result, answer)


@pytest.fixture
def soft(small: Small) -> tuple[Model, Path]:
    """A model whose logits are small, so that many spans are likely."""
    _, folder = small("BertForQuestionAnswering")
    network: Any = transformers.BertForQuestionAnswering.from_pretrained(folder)
    network.qa_outputs.weight.data *= 0.1
    network.save_pretrained(folder)
    checkpoint = converted(folder, folder.parent / "soft")
    return Model(checkpoint, open_session(checkpoint, "cpu")), folder


# As released in evaluate-v2.0.py.


def normalized(s: str) -> str:
    """As ``normalize_answer``, which is the same in both scripts."""

    def remove_articles(text: str) -> str:
        return re.sub(r"\b(a|an|the)\b", " ", text)

    def white_space_fix(text: str) -> str:
        return " ".join(text.split())

    def remove_punc(text: str) -> str:
        exclude = set(string.punctuation)
        return "".join(ch for ch in text if ch not in exclude)

    return white_space_fix(remove_articles(remove_punc(s.lower())))


def f1_of_second_script(a_gold: str, a_pred: str) -> float:
    gold_toks = normalized(a_gold).split() if a_gold else []
    pred_toks = normalized(a_pred).split() if a_pred else []
    common = collections.Counter(gold_toks) & collections.Counter(pred_toks)
    num_same = sum(common.values())
    if len(gold_toks) == 0 or len(pred_toks) == 0:
        return int(gold_toks == pred_toks)
    if num_same == 0:
        return 0
    precision = 1.0 * num_same / len(pred_toks)
    recall = 1.0 * num_same / len(gold_toks)
    return (2 * precision * recall) / (precision + recall)


def raw_scores(predictions: list[str], answers: list[list[str]]) -> tuple[list[float], list[float]]:
    """As ``get_raw_scores`` of the second script."""
    exact, f1 = [], []
    for a_pred, texts in zip(predictions, answers, strict=True):
        gold_answers = [a for a in texts if normalized(a)]
        if not gold_answers:
            gold_answers = [""]
        exact.append(max(float(normalized(a) == normalized(a_pred)) for a in gold_answers))
        f1.append(max(f1_of_second_script(a, a_pred) for a in gold_answers))
    return exact, f1
