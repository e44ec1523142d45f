"""Every task that trains, and every adapter: a resumed run has the files of an unbroken one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import assert_resumes_exactly, settings, texts, write_table
from zoo.adapters import ADAPTERS
from zoo.plugins.tasks import public_tasks

Row = Callable[[str, int], dict[str, Any]]
PAIR = {"pair": "pair"}


def labelled(text: str, number: int) -> dict[str, Any]:
    return {"text": text, "label": "yes" if text[0] <= "e" else "no"}


def graded(text: str, number: int) -> dict[str, Any]:
    return {"text": text, "label": number % 3}


def listed(text: str, number: int) -> dict[str, Any]:
    return {"text": text, "label": ",".join(sorted({*text} & {*"abc"}))}


def paired(text: str, number: int) -> dict[str, Any]:
    return {"text": text, "pair": f"{text} j"}


def scored(text: str, number: int) -> dict[str, Any]:
    return {"text": text, "pair": "a b c", "label": number % 2}


def answered(text: str, number: int) -> dict[str, Any]:
    answers = {"text": [text[0]], "answer_start": [0]}
    return {"question": "a b", "context": text, "answers": answers}


def chosen(text: str, number: int) -> dict[str, Any]:
    return {"context": text, "choices": ["a b", "c"], "label": number % 2}


def translated(text: str, number: int) -> dict[str, Any]:
    return {"text": text, "label": text[::-1]}


# task -> row, columns, family, further settings
TASKS: dict[str, tuple[Row, dict[str, str], str, dict[str, Any]]] = {
    "text-classification": (labelled, {}, "bert", {}),
    "regression": (graded, {}, "bert", {}),
    "multi-label": (listed, {}, "bert", {}),
    "ordinal-regression": (graded, {}, "bert", {}),
    "setfit": (labelled, {}, "bert", {}),
    "sentence-embedding": (paired, PAIR, "bert", {}),
    "sparse-embedding": (paired, PAIR, "bert", {}),
    "late-interaction": (paired, PAIR, "bert", {"task_args": {"dimension": 8}}),
    "reranker": (scored, PAIR, "bert", {}),
    "question-answering": (answered, {}, "bert", {}),
    "multiple-choice": (chosen, {}, "bert", {}),
    "causal-lm": (translated, {}, "gpt", {"vocab_size": 300}),
    "seq2seq": (translated, {}, "t5", {"vocab_size": 300}),
}
# Tasks with data of another form, which tests of their own resume.
ELSEWHERE = {
    "token-classification": "tests/finetuning/test_crf.py",
    "pet": "tests/tasks/pet/test_train.py",
    "prompt": "tests/tasks/prompt/test_train.py",
}
# Checkpoints of steps 2 and 4, and an evaluation before and after the interruption.
STEPS = {"max_steps": 4, "eval_steps": 2, "save_steps": 2, "vocab_size": 60}


def table_of(row: Row, folder: Path) -> Path:
    rows = [row(text, number) for number, text in enumerate(texts(24))]
    return write_table(folder / "table.jsonl", rows)


def test_no_task_is_forgotten() -> None:
    assert {spec.name for spec in public_tasks("train")} == TASKS.keys() | ELSEWHERE.keys()


# What a resumed run restores is the same for all tasks. Of these, the first has labels, the second
# trains two models, and the third draws from its rows. Tests of other tasks resume a decoder
# and the negatives of a sentence encoder.
RESUMED = ("text-classification", "setfit", "late-interaction")


@pytest.mark.by_default("text-classification")
@pytest.mark.parametrize(
    "task",
    [pytest.param(task, marks=() if task in RESUMED else pytest.mark.long) for task in TASKS],
)
def test_a_task_resumes_with_equal_files(task: str, tmp_path: Path) -> None:
    """From random weights: the tokenizer is trained, and its settings are in the run's manifest."""
    row, columns, family, changes = TASKS[task]
    file = table_of(row, tmp_path)
    tree = settings(family, file, task=task, data=columns, **{**STEPS, **changes})
    assert_resumes_exactly(tmp_path, tree, 2)


@pytest.mark.long  # tests/adapters/test_runs.py has one method
@pytest.mark.parametrize("method", ADAPTERS.built_in)
def test_an_adapter_resumes_with_equal_files(
    method: str, pretrained: Pretrained, tmp_path: Path
) -> None:
    path, _ = pretrained(hidden_dropout_prob=0.1)
    steps = {name: value for name, value in STEPS.items() if name != "vocab_size"}
    file = table_of(labelled, tmp_path)
    tree = settings(path, file, adapter={"method": method}, **steps)
    assert_resumes_exactly(tmp_path, tree, 2)
