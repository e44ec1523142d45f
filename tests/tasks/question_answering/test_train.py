"""Question answering: windows and labels, losses, metrics, runs and what does not fit."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

import zoo
from tests import warm
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    assert_resumes_exactly,
    assert_two_processes_equal_one,
    finetune,
    reference_losses,
    refused,
    settings,
    setup_of,
    training_losses,
)
from tests.tasks.question_answering.making import questions_about_letters, squad
from tests.training.runs import records
from zoo.errors import UsageError
from zoo.inference.processing.windows import ContextWindows
from zoo.objectives.base import Batch
from zoo.tasks import make_evaluation
from zoo.tasks.question_answering.data import AnswerSpan, read_questions
from zoo.tasks.question_answering.train import answer_tokens

TASK = "question-answering"
QUESTIONS = "BertForQuestionAnswering"


def run_qa_features(source: Path, data: Path, max_length: int, stride: int) -> list[list[Any]]:
    """Return ids, token types and positions of all windows, as run_qa.py of transformers'
    examples makes them (``prepare_train_features``).

    But for its search for the first token, which ends at the last token of the context here, and
    there, for an answer that is this token, goes on to the special one behind it.
    """
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    features = []
    for sample in read_questions([data]):
        encoded = tokenizer(
            sample.question,
            sample.context,
            truncation="only_second",
            max_length=max_length,
            stride=stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        for i, offsets in enumerate(encoded["offset_mapping"]):
            input_ids, sequence_ids = encoded["input_ids"][i], encoded.sequence_ids(i)
            start = end = input_ids.index(tokenizer.cls_token_id)
            if sample.answers:
                start_char, end_char = sample.answers[0].answer_start, sample.answers[0].end
                first = 0
                while sequence_ids[first] != 1:
                    first += 1
                last = len(input_ids) - 1
                while sequence_ids[last] != 1:
                    last -= 1
                if offsets[first][0] <= start_char and offsets[last][1] >= end_char:
                    bound = last + 1
                    while first < bound and offsets[first][0] <= start_char:
                        first += 1
                    start = first - 1
                    while offsets[last][1] >= end_char:
                        last -= 1
                    end = last + 1
            features.append([input_ids, encoded["token_type_ids"][i], start, end])
    return features


@pytest.mark.long
@pytest.mark.parametrize(("max_length", "stride"), [(40, None), (24, 5), (12, 0)])
def test_windows_are_those_of_run_qa(
    pretrained: Pretrained, tmp_path: Path, max_length: int, stride: int | None
) -> None:
    model, source = pretrained()
    data = questions_about_letters(tmp_path / "t.jsonl", unanswerable=True)
    arguments = {} if stride is None else {"task_args": {"doc_stride": stride}}
    tree = settings(model, data, task=TASK, max_seq_len=max_length, data={"eval": [str(data)]})
    tree |= arguments
    rows = setup_of(finetune(tmp_path / "run", {**tree, "max_steps": 1})).train_rows
    expected = run_qa_features(source, data, max_length, 20 if stride is None else stride)
    examples = [rows.example(k, None) for k in range(len(rows))]  # type: ignore[arg-type]
    assert [
        [
            row.arrays["input_ids"].tolist(),
            row.arrays["token_type_ids"].tolist(),
            *row.values["labels"].tolist(),
        ]
        for row in examples
    ] == expected
    answered = [start != 0 for _, _, start, _ in expected]
    assert set(map(bool, answered)) == {True, False} and len(expected) > 40


def test_tokens_that_share_characters_with_the_answer() -> None:
    """Bytes of a character, a token with the space before it, and one that goes on after it."""

    offsets = [(0, 1), (0, 0), (0, 2), (2, 3), (2, 3), (3, 7), (7, 7), (7, 12), (0, 0)]
    sequence_ids = [0, None, 1, 1, 1, 1, 1, 1, None]
    pair: Any = SimpleNamespace(offsets=offsets, sequence_ids=sequence_ids)
    context = ContextWindows(16, 4).context(pair)
    assert answer_tokens(pair, context, AnswerSpan("é", 2)) == range(3, 5)
    assert answer_tokens(pair, context, AnswerSpan("the w", 4)) == range(5, 8)
    assert answer_tokens(pair, context, AnswerSpan("?", 12)) == range(0)


def test_losses_are_those_of_the_reference(pretrained: Pretrained, tmp_path: Path) -> None:
    """Padding, which the reference would count as tokens, changes nothing."""
    import transformers

    model, source = pretrained(QUESTIONS)
    reference: Any = getattr(transformers, QUESTIONS).from_pretrained(source)

    def batch_loss(batch: Batch) -> tuple[Tensor, int]:
        losses = []
        for row, length in enumerate(batch.tensors["tokens"].tolist()):
            start, end = batch.tensors["labels"][row]
            tensors = {"start_positions": start[None], "end_positions": end[None]}
            for name in ("input_ids", "token_type_ids"):
                tensors[name] = batch.tensors[name][row, None, :length]
            losses.append(reference(**tensors).loss)
        return torch.stack(losses).sum(), batch.rows

    data = questions_about_letters(tmp_path / "t.jsonl", unanswerable=True)
    run = finetune(tmp_path / "run", settings(model, data, task=TASK, max_seq_len=24))
    expected = reference_losses(run, reference, batch_loss)
    assert training_losses(run) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("metric", ["no_answer_f1", "has_answer_exact_match"])
def test_a_metric_of_questions_that_are_not_there(
    pretrained: Pretrained, tmp_path: Path, metric: str
) -> None:
    model, _ = pretrained()
    data = questions_about_letters(tmp_path / "t.jsonl")
    tree = settings(model, data, task=TASK, metric_for_best_model=metric)
    remedy = "set metric_for_best_model to loss, exact_match, f1$"
    with pytest.raises(UsageError, match=rf"counts for the metric {metric}; .* {remedy}"):
        finetune(tmp_path / "run", tree)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
@pytest.mark.parametrize("unanswerable", [pytest.param(False, marks=pytest.mark.long), True])
def test_metrics_are_those_of_the_evaluation(
    pretrained: Pretrained, tmp_path: Path, unanswerable: bool
) -> None:
    """Of a model that has learnt something, so that scores are between 0 and 1."""
    model, _ = pretrained()
    train = questions_about_letters(tmp_path / "t.jsonl", 200, unanswerable=unanswerable)
    held = questions_about_letters(tmp_path / "e.jsonl", 60, 5, unanswerable)
    tree = settings(model, train, task=TASK, max_seq_len=32, data={"eval": [str(held)]})
    tree |= {"max_steps": 60, "eval_steps": 60, "save_steps": 60}
    run = finetune(tmp_path / "run", {**tree, "optimizer": {"learning_rate": 1e-2}})
    metrics = records(run, "validation")[-1]["metrics"]
    loaded = zoo.load(run / "model", backend="cpu")
    task = make_evaluation(TASK, loaded.checkpoint, loaded.session, max_seq_len=32)
    expected = dict(task.evaluate([held]).metrics)
    assert expected.pop("questions") == 60
    assert metrics == pytest.approx(expected)
    assert ("no_answer_f1" in metrics) == unanswerable
    assert 0 < metrics["f1"] < 1
    manifest = json.loads((run / "model" / "zoo.json").read_text())
    assert manifest["training"]["best"] == [pytest.approx(metrics["f1"]), 60]


@pytest.mark.long  # tests/finetuning/test_every_task.py resumes three tasks
def test_a_resumed_run_ends_bit_for_bit_the_same(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained(hidden_dropout_prob=0.1)
    data = questions_about_letters(tmp_path / "t.jsonl")
    assert_resumes_exactly(tmp_path, settings(model, data, task=TASK, save_total_limit=9), 6)


@pytest.mark.long
def test_two_processes_have_the_losses_and_metrics_of_one(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    model, _ = pretrained()
    data, held = (
        questions_about_letters(tmp_path / "t.jsonl"),
        questions_about_letters(tmp_path / "e.jsonl", 15, 1, True),
    )
    tree = settings(model, data, task=TASK, data={"eval": [str(held)]}, max_seq_len=24)
    assert_two_processes_equal_one(tmp_path / "runs", tree)


@pytest.mark.long
def test_the_model_answers_and_converts(pretrained: Pretrained, tmp_path: Path) -> None:
    """Windows are long by default, whatever the preset, and logits those of transformers."""
    import transformers

    model, _ = pretrained()
    data = questions_about_letters(tmp_path / "t.jsonl")
    arguments = ("--task", TASK, "--train", data, "--max-steps", "2", "--device", "cpu")
    done = warm.zoo("finetune", model, *arguments, "-o", tmp_path / "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "new weights: head (66)" in done.stderr
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["max_seq_len"] == 40, "the model's limit, below the 384 of the task"
    hub = tmp_path / "hub"
    done = warm.zoo("convert", tmp_path / "run" / "model", "--to", "hub", "-o", hub)
    assert done.returncode == 0, done.stderr
    reference: Any = transformers.AutoModelForQuestionAnswering.from_pretrained(hub).eval()
    assert type(reference).__name__ == QUESTIONS and reference.config.num_labels == 2
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub)
    loaded = zoo.load(tmp_path / "run" / "model", backend="cpu")
    encoded = tokenizer("a", "b c d", return_tensors="pt")
    with torch.no_grad():
        expected = reference(**encoded)
    inputs = {name: tensor.numpy() for name, tensor in encoded.items()}
    outputs = loaded.session.run(inputs, ("start_logits", "end_logits"))
    for name, values in outputs.items():
        np.testing.assert_allclose(values, expected[name].numpy(), atol=1e-5)
    (result,) = loaded.answer([("a", "b c d")])
    assert result["answer"] in "b c d"


LIKE_BERT = ("albert", "distilbert", "electra", "roberta")


@pytest.mark.long
@pytest.mark.parametrize(
    "family",
    [
        "modernbert",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("deberta", *LIKE_BERT)),
    ],
)
def test_families_learn_from_random_weights(tmp_path: Path, family: str) -> None:
    """And an evaluation of the model has the metrics of its run."""
    data = questions_about_letters(tmp_path / "t.jsonl", 30, unanswerable=True)
    changes = {"task": TASK, "vocab_size": 300, "max_seq_len": 32, "max_steps": 2}
    tree = settings(family, data, **changes, data={"eval": [str(data)]})
    run = finetune(tmp_path / "run", {**tree, "eval_steps": 2, "save_steps": 2})
    (record,) = records(run, "validation")
    loaded = zoo.load(run / "model", backend="cpu")
    task = make_evaluation(TASK, loaded.checkpoint, loaded.session, max_seq_len=32)
    expected = dict(task.evaluate([data]).metrics)
    assert expected.pop("questions") == 30
    assert record["metrics"] == pytest.approx(expected)


@pytest.mark.long
@pytest.mark.parametrize("family", ["gpt", "t5"])
def test_families_without_a_classification_token(tmp_path: Path, family: str) -> None:
    """They learn from the windows that have the answer, and nothing from the others."""
    data = questions_about_letters(tmp_path / "t.jsonl")
    changes = {"task": TASK, "vocab_size": 300, "max_seq_len": 16, "max_steps": 2}
    tree = settings(family, data, **changes)
    run = finetune(tmp_path / "run", tree)
    rows = setup_of(run).train_rows
    starts, counts = rows.values["labels"][:, 0], rows.counts[TASK]
    assert set(counts.tolist()) == {0, 1}
    assert ((starts == -100) == (counts == 0)).all()
    assert {"exact_match", "f1"} == set(records(run, "validation")[-1]["metrics"])
    unanswerable = settings(
        family, questions_about_letters(tmp_path / "u.jsonl", 9, unanswerable=True), **changes
    )
    with pytest.raises(UsageError, match=r"u\.jsonl:1 has no answer, and the tokenizer has no cl"):
        finetune(tmp_path / "refused", unanswerable)


def test_what_does_not_fit(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    answer = {"text": "b", "answer_start": 3}
    path = squad(tmp_path / "t.json", {"id": "q", "question": "a", "answers": [answer]})
    tree = settings(model, path, task=TASK)
    refused(tmp_path, tree, "question q: the answer 'b' is not at 3")
    data = questions_about_letters(tmp_path / "t.jsonl")
    tree = settings(model, data, task=TASK, task_args={"doc_strid": 3})
    refused(tmp_path, tree, "question-answering has no option 'doc_strid'; did you mean doc_stri")
    tree = settings(model, data, task=TASK, task_args={"max_answer_len": 0})
    refused(tmp_path, tree, "max_answer_len is 0, not positive")
    tree = settings(model, data, task=TASK, max_seq_len=12, task_args={"doc_stride": 11})
    refused(tmp_path, tree, "has no room for the context")
    tree = settings("elmo", data, task=TASK)
    refused(tmp_path, tree, "elmo has no head question-answering")
