"""``mistakes.json`` and reports of fine-tuning, against ``zoo eval --predictions``."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import zoo
from tests import warm
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    assert_two_processes_equal_one,
    finetune,
    labelled,
    settings,
    texts,
    write_table,
)
from tests.tasks.question_answering.test_train import questions_about_letters
from tests.training.logging.test_report import Page
from tests.training.runs import records
from zoo.report.mistakes import Mistakes, read_mistakes

FAST: dict[str, Any] = {"max_steps": 8, "eval_steps": 4, "save_total_limit": 9}


def evaluated(run: Path, table: Path, task: str, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    zoo.evaluate(
        run / "model",
        task=task,
        data=table,
        on_prediction=lambda row: rows.append(dict(row)),
        **options,
    )
    return rows


def mistakes_of(run: Path) -> Mistakes:
    found = read_mistakes(run)
    assert found is not None
    return found


def test_they_are_the_predictions_of_the_best_model(pretrained: Pretrained, tmp_path: Path) -> None:
    table = labelled(tmp_path / "train.tsv")
    held_out = labelled(tmp_path / "held out.tsv", 24, seed=1)
    tree = settings(pretrained()[0], table, data={"eval": [str(held_out)]}, **FAST)
    run = finetune(tmp_path / "run", tree)
    found, rows = mistakes_of(run), evaluated(run, held_out, "text-classification")
    wrong = [row for row in rows if not row["correct"]]
    assert (found.samples, found.wrong) == (24, len(wrong))
    best = max(records(run, "validation"), key=lambda record: record["metrics"]["accuracy"])
    assert found.step == best["step"]
    assert 1 - found.wrong / 24 == pytest.approx(best["metrics"]["accuracy"])
    assert found.labels == {
        name: (count, sum(row["label"] == name for row in wrong))
        for name, count in Counter(row["label"] for row in rows).items()
    }
    cells = Counter((row["label"], row["prediction"]) for row in rows)
    assert cells == {(a, b): n for a, row in found.confusion.items() for b, n in row.items()}
    assert sum(point["samples"] for point in found.reliability) == 24
    expected = sorted(wrong, key=lambda row: -row["probability"])
    assert [row["text"] for row in found.worst] == [row["text"] for row in expected]
    for ours, theirs in zip(found.worst, expected, strict=True):
        assert ours == {**theirs, "probability": pytest.approx(theirs["probability"], abs=1e-5)}
    page = Page(run / "report.html")
    assert "Worst predictions" in page.text
    assert [row["text"] for row in expected if row["text"] not in page.text] == []
    # what selects the checkpoint comes first
    assert page.text.index("accuracy") < page.text.index("validation loss")
    charts = [attrs["aria-label"] for tag, attrs in page.seen if tag == "svg"]
    assert charts[:2] == ["Accuracy by step", "Loss by step"]
    assert {"Confusion matrix", "Accuracy by confidence"} <= {*charts}


def test_numbers_and_lists_of_labels(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    rows = [{"text": t, "label": float(len(t))} for t in texts(24)]
    table = write_table(tmp_path / "numbers.jsonl", rows)
    data = {"eval": [str(table)]}
    tree = settings(model, table, task="regression", data=data, **FAST)
    run = finetune(tmp_path / "numbers", tree)
    predicted = evaluated(run, table, "regression")
    predicted.sort(key=lambda row: -abs(row["error"]))
    assert [row["text"] for row in mistakes_of(run).worst[:3]] == [
        row["text"] for row in predicted[:3]
    ]
    rows = [{"text": t, "label": [n for n in "ab" if n in t]} for t in texts(24)]
    table = write_table(tmp_path / "lists.jsonl", rows)
    data = {"eval": [str(table)]}
    tree = settings(model, table, task="multi-label", data=data, **FAST)
    run = finetune(tmp_path / "lists", tree)
    found, predicted = mistakes_of(run), evaluated(run, table, "multi-label")
    assert found.wrong == sum(not row["correct"] for row in predicted)
    counts = Counter(name for row in predicted for name in row["label"])
    assert {name: samples for name, (samples, _) in found.labels.items()} == counts


@pytest.mark.parametrize("spans", [True, False], ids=["entities", "labels"])
def test_sentences(pretrained: Pretrained, tmp_path: Path, spans: bool) -> None:
    names = {True: "B-X", False: "O"} if spans else {True: "noun", False: "verb"}
    rows = [
        {"text": t.split(), "label": [names[word < "d"] for word in t.split()]} for t in texts(24)
    ]
    table = write_table(tmp_path / "words.jsonl", rows)
    data = {"eval": [str(table)]}
    tree = settings(pretrained()[0], table, task="token-classification", data=data, **FAST)
    run = finetune(tmp_path / "run", tree)
    found, predicted = mistakes_of(run), evaluated(run, table, "token-classification")
    wrong = [row for row in predicted if not row["correct"]]
    assert (found.samples, found.wrong) == (24, len(wrong))
    wrong.sort(key=lambda row: row["missed"] + row["wrong"], reverse=True)
    keys = ("location", "text", "label", "prediction", "correct", "missed", "wrong")
    assert found.worst == [{key: row[key] for key in keys} for row in wrong]


@pytest.mark.parametrize("unanswerable", [False, True])
def test_questions(pretrained: Pretrained, tmp_path: Path, unanswerable: bool) -> None:
    model, _ = pretrained("BertForQuestionAnswering")
    table = questions_about_letters(tmp_path / "q.jsonl", 20, unanswerable=unanswerable)
    data = {"eval": [str(table)]}
    tree = settings(model, table, task="question-answering", data=data, max_seq_len=32, **FAST)
    run = finetune(tmp_path / "run", tree)
    found, predicted = mistakes_of(run), evaluated(run, table, "question-answering", max_seq_len=32)
    wrong = [row for row in predicted if not row["correct"]]
    assert (found.samples, found.wrong) == (20, len(wrong)) and wrong
    wrong.sort(key=lambda row: -row["probability"])
    for ours, theirs in zip(found.worst, wrong, strict=True):
        assert ours == {**theirs, "probability": pytest.approx(theirs["probability"], abs=1e-5)}


def test_processes_record_them_together(pretrained: Pretrained, tmp_path: Path) -> None:
    held_out = labelled(tmp_path / "even.tsv", 24, seed=1)
    table = labelled(tmp_path / "train.tsv")
    tree = settings(pretrained()[0], table, data={"eval": [str(held_out)]}, **FAST)
    assert_two_processes_equal_one(tmp_path / "two", tree)
    one, two = (mistakes_of(tmp_path / "two" / name) for name in ("single", "parallel"))
    assert one.confusion == two.confusion and one.labels == two.labels
    assert [row["location"] for row in one.worst] == [row["location"] for row in two.worst]


def test_the_report_of_an_evaluation(pretrained: Pretrained, tmp_path: Path) -> None:
    table = labelled(tmp_path / "t.tsv")
    run = finetune(tmp_path / "run", settings(pretrained()[0], table, **FAST))
    path = tmp_path / "a report.html"
    command = ("eval", run / "model", "--task", "text-classification", "--eval", table)
    done = warm.zoo(*command, "--report", path, "--json")
    assert done.returncode == 0, done.stderr
    value, page = json.loads(done.stdout), Page(path)
    accuracy, (low, high) = value["metrics"]["accuracy"], value["intervals"]["accuracy"]
    assert page.text[page.text.index("accuracy") + 1 :][:2] == [
        f"{accuracy:.4f}",
        f"{low:.4f} to {high:.4f} (95 %)",
    ]
    cells = [(a, b, n) for a, row in value["confusion"].items() for b, n in row.items()]
    wrong = sum(count for label, prediction, count in cells if label != prediction)
    error = value["metrics"]["calibration_error"]
    expected = f"{wrong} of 40 predictions are wrong; expected calibration error {error:.4f}"
    assert expected in page.text
    before = path.read_bytes()
    refused = warm.zoo(*command, "--report", path)
    assert refused.returncode == 2 and "--force" in refused.stderr
    assert path.read_bytes() == before
    refused = warm.zoo(*command, "--report", tmp_path / "a.pdf")
    assert refused.returncode == 2 and "end the name in .html" in refused.stderr
