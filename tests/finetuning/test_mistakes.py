"""``mistakes.json`` and reports of fine-tuning, against ``zoo eval --predictions``."""

import json
import shlex
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
from tests.tasks.causal_lm.making import LINES, MakeSource, prompts, source
from tests.tasks.question_answering.making import questions_about_letters
from tests.training.logging.making import Page
from tests.training.runs import records
from zoo.report.mistakes import Mistakes, read_mistakes

__all__ = ["source"]
FAST: dict[str, Any] = {"max_steps": 8, "eval_steps": 4, "save_total_limit": 9}


def evaluated(run: Path, table: Path, task: str, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    zoo.evaluate(
        run / "model",
        task=task,
        eval=table,
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
    assert 1 - len(wrong) / 24 == pytest.approx(best["metrics"]["accuracy"])
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.by_default("False")
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


@pytest.mark.long
def test_texts_that_a_decoder_finds_unlikely(source: MakeSource, tmp_path: Path) -> None:
    """Of prompts with completions; and of documents, whose rows are added up."""
    model = source()
    data = {"label": "label", "eval": [str(prompts(tmp_path / "e.jsonl", 12))]}
    tree = settings(model, tmp_path / "e.jsonl", task="causal-lm", data=data, **FAST)
    run = finetune(tmp_path / "run", tree)
    found, rows = mistakes_of(run), evaluated(run, tmp_path / "e.jsonl", "causal-lm")
    rows.sort(key=lambda row: -row["loss"])
    assert (found.samples, found.wrong) == (len(rows), None)
    for ours, theirs in zip(found.worst, rows, strict=True):
        del theirs["least_likely"]
        assert ours == {**theirs, "loss": pytest.approx(theirs["loss"], abs=1e-5)}
    assert f"{len(rows)} predictions at step {found.step}" in " ".join(
        Page(run / "report.html").text
    )
    (tmp_path / "t.txt").write_text("\n\n".join(" ".join(LINES[k : k + 9]) for k in (0, 9, 18)))
    documents: Any = {"label": None, "eval": [str(tmp_path / "t.txt")]}
    tree = settings(
        model, tmp_path / "t.txt", task="causal-lm", data=documents, max_seq_len=32, **FAST
    )
    run = finetune(tmp_path / "documents", tree)
    found = mistakes_of(run)
    assert {row["location"] for row in found.worst} == {
        f"{tmp_path / 't.txt'}, document {number}" for number in (1, 2, 3)
    }
    (record,) = (r for r in records(run, "validation") if r["step"] == found.step)
    total = sum(row["loss"] * row["tokens"] for row in found.worst)
    assert total / sum(row["tokens"] for row in found.worst) == pytest.approx(record["loss"])


@pytest.mark.long
def test_pairs_of_texts(pretrained: Pretrained, tmp_path: Path) -> None:
    """Those whose similarity ranks least like their score, and anchors whose text is not first."""
    model, _ = pretrained("BertModel")
    sides = list(zip(texts(24), texts(24, 1), strict=True))
    scored = write_table(
        tmp_path / "scored.jsonl",
        [{"text": a, "pair": b, "label": k % 5} for k, (a, b) in enumerate(sides)],
    )
    classes = write_table(
        tmp_path / "classes.jsonl",
        [{"text": a, "pair": b, "label": "yn"[k % 2]} for k, (a, b) in enumerate(sides)],
    )
    triples = write_table(
        tmp_path / "triples.jsonl",
        [{"text": a, "pair": b, "no": c} for (a, b), c in zip(sides, texts(24, 2), strict=True)],
    )
    task: Any = {"task": "sentence-embedding", **FAST}

    def trained(name: str, table: Path, **changes: Any) -> Path:
        data = {"pair": "pair", "eval": [str(table)], **changes.pop("data", {})}
        return finetune(tmp_path / name, settings(model, table, data=data, **task, **changes))

    run = trained("scores", scored, data={"label": "label"})
    found, rows = mistakes_of(run), evaluated(run, scored, "sentence-embedding", pair="pair")
    rows.sort(key=lambda row: -abs(row["rank_difference"]))
    assert found.wrong is None and len(found.worst) == 24
    assert [abs(row["rank_difference"]) for row in found.worst] == pytest.approx(
        [abs(row["rank_difference"]) for row in rows], abs=1e-6
    )
    run = trained("retrieval", triples, data={"label": None})
    found, rows = mistakes_of(run), evaluated(run, triples, "sentence-embedding", pair="pair")
    wrong = sorted((row for row in rows if not row["correct"]), key=lambda row: -row["rank"])
    assert (found.samples, found.wrong) == (len(rows), len(wrong)) and wrong
    for ours, theirs in zip(found.worst, wrong, strict=True):
        assert ours == {**theirs, "similarity": pytest.approx(theirs["similarity"], abs=1e-5)}
    run = trained("triplets", triples, data={"negatives": ["no"]}, task_args={"loss": "triplet"})
    found = mistakes_of(run)
    best = max(record["metrics"]["accuracy"] for record in records(run, "validation"))
    assert 1 - (found.wrong or 0) / found.samples == pytest.approx(best)
    run = trained("classes", classes, data={"label": "label"}, task_args={"loss": "softmax"})
    found = mistakes_of(run)
    best = max(record["metrics"]["accuracy"] for record in records(run, "validation"))
    assert 1 - (found.wrong or 0) / found.samples == pytest.approx(best)
    assert {name: count for name, (count, _) in found.labels.items()} == {"y": 12, "n": 12}


@pytest.mark.long
def test_texts_in_another_order_than_their_grades(pretrained: Pretrained, tmp_path: Path) -> None:
    """Of a query, whatever rows have its texts."""
    anchors, others = texts(8), texts(24, 1)
    rows = [{"text": anchors[k % 8], "pair": b, "label": k % 3 / 2} for k, b in enumerate(others)]
    table = write_table(tmp_path / "graded.jsonl", rows)
    data = {"pair": "pair", "label": "label", "eval": [str(table)]}
    model, _ = pretrained("BertForSequenceClassification", num_labels=1)
    run = finetune(tmp_path / "run", settings(model, table, task="reranker", data=data, **FAST))
    found, ranked = mistakes_of(run), evaluated(run, table, "reranker", pair="pair")
    wrong = [row for row in ranked if not row["correct"]]
    assert (found.samples, found.wrong) == (len(ranked), len(wrong)) and wrong
    assert sorted(row["ndcg_at_10"] for row in found.worst) == pytest.approx(
        sorted(row["ndcg_at_10"] for row in wrong)
    )


@pytest.mark.long
def test_margins_have_a_row_of_each_negative(pretrained: Pretrained, tmp_path: Path) -> None:
    anchors, others = texts(8), texts(24, 1)
    rows = [
        {"text": a, "pair": b, "no": c, "label": 0.1 * k}
        for k, (a, b, c) in enumerate(zip(anchors, others, others[8:], strict=False))
    ]
    table = write_table(tmp_path / "margins.jsonl", rows)
    columns = {"pair": "pair", "negatives": ["no"], "label": "label", "eval": [str(table)]}
    loss = {"task_args": {"loss": "margin-mse"}, "batch_size": 4}
    model, _ = pretrained()
    tree = settings(model, table, task="sparse-embedding", data=columns, **loss, **FAST)
    found = mistakes_of(finetune(tmp_path / "sparse", tree))
    assert {row["negative"] for row in found.worst} == {row["no"] for row in rows}
    differences = [abs(row["rank_difference"]) for row in found.worst]
    assert found.wrong is None and differences == sorted(differences, reverse=True)


@pytest.mark.long
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
    (repeat,) = [text for text in page.text if text.startswith("cd ")]
    _, _, words = repeat.partition(" && ")
    assert shlex.split(words) == ["zoo", *map(str, command), "--report", str(path), "--json"]
    before = path.read_bytes()
    refused = warm.zoo(*command, "--report", path)
    assert refused.returncode == 2 and "--force" in refused.stderr
    assert path.read_bytes() == before
    refused = warm.zoo(*command, "--report", tmp_path / "a.pdf")
    assert refused.returncode == 2 and "end the name in .html" in refused.stderr
