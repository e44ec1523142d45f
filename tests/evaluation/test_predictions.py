"""``zoo eval --predictions``: what each task says of a sample, against metrics and references."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests import warm
from tests.evaluation.conftest import Small
from tests.evaluation.making import TEXTS, logits
from tests.tasks.seq2seq.making import hub as hub  # fixture of ``seq2seq_path``
from tests.tasks.seq2seq.making import path as seq2seq_path
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.inference import load_session
from zoo.tasks import make_evaluation

__all__ = ["hub", "seq2seq_path"]

NAMES = {"id2label": {0: "x", 1: "y", 2: "z"}, "label2id": {"x": 0, "y": 1, "z": 2}}


def predictions(
    task: str, model: Model, file: Path, **options: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the metrics of an evaluation, and its predictions."""
    rows: list[dict[str, Any]] = []
    evaluation = make_evaluation(task, model.checkpoint, model.session, **options)
    result = evaluation.evaluate([file], on_prediction=lambda row: rows.append(dict(row)))
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    assert result == make_evaluation(task, model.checkpoint, model.session, **options).evaluate(
        [file]
    )
    return dict(result.metrics), rows


def table(path: Path, *columns: Iterable[Any], header: str = "text\tlabel") -> Path:
    lines = ("\t".join(map(str, row)) for row in zip(*columns, strict=True))
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def test_text_classification(small: Small, tmp_path: Path) -> None:
    model, source = small("BertForSequenceClassification", **NAMES)
    probabilities = logits(source).double().softmax(-1)
    file = table(tmp_path / "t.tsv", TEXTS, ["xyz"[k % 3] for k in range(len(TEXTS))])
    metrics, rows = predictions("text-classification", model, file)
    assert [row["text"] for row in rows] == TEXTS
    assert rows[1]["location"] == f"{file}:3"
    assert [row["prediction"] for row in rows] == [
        "xyz"[k] for k in probabilities.argmax(-1).tolist()
    ]
    best = probabilities.max(-1).values.tolist()
    assert [row["probability"] for row in rows] == pytest.approx(best, abs=1e-5)
    assert np.mean([row["correct"] for row in rows]) == metrics["accuracy"]


def test_labels_are_named_as_in_the_data(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForSequenceClassification")
    file = table(tmp_path / "t.tsv", TEXTS, [0, 1] * 4)
    _, rows = predictions("text-classification", model, file)
    assert [row["label"] for row in rows] == ["0", "1"] * 4
    assert {row["prediction"] for row in rows} <= {"0", "1"}


def test_regression(small: Small, tmp_path: Path) -> None:
    model, source = small("BertForSequenceClassification", num_labels=1, problem_type="regression")
    file = table(tmp_path / "t.tsv", TEXTS, range(8))
    metrics, rows = predictions("regression", model, file)
    errors = logits(source)[:, 0].numpy() - np.arange(8)
    assert [row["error"] for row in rows] == pytest.approx(errors.tolist(), abs=1e-4)
    assert np.square([row["error"] for row in rows]).mean() == pytest.approx(metrics["mse"])


@pytest.mark.long
def test_several_labels(small: Small, tmp_path: Path) -> None:
    kind = {"problem_type": "multi_label_classification"}
    model, source = small("BertForSequenceClassification", **NAMES, **kind)
    file = table(tmp_path / "t.tsv", TEXTS, ["x,y", "z"] * 4)
    metrics, rows = predictions("multi-label", model, file)
    scores = logits(source).double().sigmoid()
    joint = scores.where(scores >= 0.5, 1 - scores).prod(-1).tolist()
    assert [row["probability"] for row in rows] == pytest.approx(joint, abs=1e-5)
    assert [row["label"] for row in rows] == [["x", "y"], ["z"]] * 4
    chosen = [[n for n, p in zip("xyz", s, strict=True) if p >= 0.5] for s in scores.tolist()]
    assert [row["prediction"] for row in rows] == chosen
    assert np.mean([row["correct"] for row in rows]) == metrics["exact_match"]


@pytest.mark.long
def test_ordinal(small: Small, tmp_path: Path) -> None:
    names = {"id2label": {0: "1", 1: "2", 2: "3"}, "label2id": {"1": 0, "2": 1, "3": 2}}
    model, _ = small("BertForSequenceClassification", **names)
    file = table(tmp_path / "t.tsv", TEXTS, [1, 2, 3, 3] * 2)
    metrics, rows = predictions("ordinal-regression", model, file)
    assert np.mean([row["distance"] for row in rows]) == pytest.approx(
        metrics["mean_absolute_error"]
    )


@pytest.mark.long
@pytest.mark.parametrize("spans", [True, False], ids=["entities", "labels"])
def test_token_classification(small: Small, tmp_path: Path, spans: bool) -> None:
    names = ["O", "B-A", "I-A"] if spans else ["O", "A", "B"]
    config = {
        "id2label": dict(enumerate(names)),
        "label2id": {name: number for number, name in enumerate(names)},
    }
    model, _ = small("BertForTokenClassification", **config)
    file = tmp_path / "t.jsonl"
    labels = [[names[k % 3] for k in range(len(text.split()))] for text in TEXTS]
    lines = [{"text": text.split(), "label": row} for text, row in zip(TEXTS, labels, strict=True)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    metrics, rows = predictions("token-classification", model, file)
    words = [(a, b) for row in rows for a, b in zip(row["label"], row["prediction"], strict=True)]
    assert len(words) == metrics["words"]
    assert np.mean([a == b for a, b in words]) == pytest.approx(metrics["accuracy"])
    assert [len(row["probability"]) for row in rows] == [len(row["words"]) for row in rows]
    wrong = [row["missed"] + row["wrong"] for row in rows]
    assert [row["correct"] for row in rows] == [number == 0 for number in wrong]


def test_questions(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForQuestionAnswering")
    file = tmp_path / "t.jsonl"
    answer = {"text": ["b"], "answer_start": [2]}
    lines = [{"question": text, "context": "a b c d", "answers": answer} for text in TEXTS]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    metrics, rows = predictions("question-answering", model, file)
    assert rows[0]["label"] == ["b"] and rows[0]["context"] == "a b c d"
    assert np.mean([row["correct"] for row in rows]) == metrics["exact_match"]
    assert np.mean([row["f1"] for row in rows]) == pytest.approx(metrics["f1"])


def test_choices(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForMultipleChoice")
    file = tmp_path / "t.jsonl"
    lines = [{"context": t, "choices": ["a b", "c"], "label": k % 2} for k, t in enumerate(TEXTS)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    metrics, rows = predictions("multiple-choice", model, file)
    assert [row["label"] for row in rows] == ["a b", "c"] * 4
    assert np.mean([row["correct"] for row in rows]) == metrics["accuracy"]
    assert np.mean([row["prediction"] == row["label"] for row in rows]) == metrics["accuracy"]


@pytest.mark.long
def test_similarity_and_retrieval(small: Small, tmp_path: Path) -> None:
    from scipy.stats import rankdata, spearmanr

    model, _ = small("BertModel")
    file = table(tmp_path / "t.tsv", TEXTS, TEXTS[::-1], range(8), header="text\tother\tlabel")
    metrics, rows = predictions("sentence-embedding", model, file, pair="other")
    columns = [[row[name] for row in rows] for name in ("label", "prediction")]
    assert spearmanr(*columns).statistic == pytest.approx(metrics["spearman"])
    ratings, similarities = map(rankdata, columns)
    differences = [row["rank_difference"] for row in rows]
    assert differences == pytest.approx(((similarities - ratings) / 7).tolist())
    file = table(tmp_path / "pairs.tsv", TEXTS, TEXTS[::-1], header="text\tother")
    metrics, rows = predictions("sentence-embedding", model, file, pair="other")
    assert [row["label"] for row in rows] == [[text] for text in TEXTS[::-1]]
    assert np.mean([row["correct"] for row in rows]) == pytest.approx(metrics["accuracy"])
    assert np.mean([1 / row["rank"] for row in rows]) == pytest.approx(metrics["mrr"])


def test_likelihoods(causal: tuple[Model, Any, Any], tmp_path: Path) -> None:
    model, reference, tokenizer = causal
    (tmp_path / "t.txt").write_text("\n\n".join(TEXTS[1:4]))
    metrics, rows = predictions("perplexity", model, tmp_path / "t.txt")
    assert [row["text"] for row in rows] == TEXTS[1:4]
    for row in rows:  # the least likely tokens are those of the reference
        ids = [tokenizer.bos_token_id, *tokenizer(row["text"])["input_ids"]]
        logits = reference(input_ids=torch.tensor([ids])).logits[0, :-1].double()
        chances = logits.log_softmax(-1)[range(len(ids) - 1), ids[1:]].tolist()
        pairs = sorted(zip(chances, tokenizer.convert_ids_to_tokens(ids[1:]), strict=True))[:5]
        assert [token["token"] for token in row["least_likely"]] == [token for _, token in pairs]
        found = [token["log_prob"] for token in row["least_likely"]]
        assert found == pytest.approx([chance for chance, _ in pairs], abs=1e-5)
    total = sum(row["loss"] * row["tokens"] for row in rows)
    assert total / metrics["tokens"] == pytest.approx(metrics["loss"])
    file = table(tmp_path / "t.tsv", TEXTS, TEXTS[::-1])
    metrics, rows = predictions("causal-lm", model, file)
    total = sum(row["loss"] * row["tokens"] for row in rows)
    assert total / metrics["tokens"] == pytest.approx(metrics["loss"])
    header = "paradigm\tgood\tbad"
    file = table(tmp_path / "p.tsv", ["p"] * 3, TEXTS[1:4], TEXTS[4:7], header=header)
    metrics, rows = predictions("minimal-pairs", model, file)
    assert np.mean([row["margin"] > 0 for row in rows]) == pytest.approx(metrics["accuracy"])


def test_lines_of_a_masked_model(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForMaskedLM")
    (tmp_path / "t.txt").write_text("a b\n\nc d e\nj\n")
    metrics, rows = predictions("pseudo-perplexity", model, tmp_path / "t.txt")
    assert [row["text"] for row in rows] == ["a b", "c d e", "j"]
    total = sum(row["loss"] * row["tokens"] for row in rows)
    assert total / metrics["tokens"] == pytest.approx(metrics["loss"])


def test_replaced_tokens(small: Small, tmp_path: Path) -> None:
    model, _ = small("ElectraForPreTraining")
    (tmp_path / "t.txt").write_text("a b c ab a c c b a b " * 30)
    metrics, rows = predictions("replaced-tokens", model, tmp_path / "t.txt", max_seq_len=18)
    flags = [(a, b) for row in rows for a, b in zip(row["label"], row["prediction"], strict=True)]
    assert np.mean([a for a, _ in flags]) == pytest.approx(metrics["replaced"])
    assert np.mean([a == b for a, b in flags]) == pytest.approx(metrics["accuracy"])
    probable = [p > 0.5 for row in rows for p in row["probability"]]
    assert probable == [flag for _, flag in flags]


def test_generated_texts(seq2seq_path: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(seq2seq_path)
    model = Model(checkpoint, load_session(checkpoint, "cpu"))
    file = table(tmp_path / "t.tsv", TEXTS, TEXTS[::-1])
    metrics, rows = predictions("seq2seq", model, file, max_new_tokens=3)
    assert [row["label"] for row in rows] == TEXTS[::-1]
    assert np.mean([row["correct"] for row in rows]) == metrics["exact_match"]


@pytest.mark.by_default("parquet")
@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_the_command_writes_a_file_once(small: Small, tmp_path: Path, ending: str) -> None:
    model, _ = small("BertForSequenceClassification", **NAMES)
    file = table(tmp_path / "my texts.tsv", TEXTS, ["xyz"[k % 3] for k in range(len(TEXTS))])
    path = tmp_path / f"predicted here.{ending}"
    command = (
        *("eval", model.checkpoint.path, "--task", "text-classification", "--eval", file),
        *("--predictions", path, "--json"),
    )
    done = warm.zoo(*command)
    assert done.returncode == 0, done.stderr
    if ending == "jsonl":
        correct = [json.loads(line)["correct"] for line in path.read_text().splitlines()]
    elif ending == "csv":
        with path.open(newline="") as lines:
            correct = [row["correct"] == "true" for row in csv.DictReader(lines)]
    else:
        import pyarrow.parquet

        correct = pyarrow.parquet.read_table(path)["correct"].to_pylist()
    assert np.mean(correct) == json.loads(done.stdout)["metrics"]["accuracy"]
    before = path.read_bytes()
    again = warm.zoo(*command)
    assert again.returncode == 2 and "--force" in again.stderr
    assert path.read_bytes() == before
    assert warm.zoo(*command, "--force").returncode == 0


@pytest.mark.long
def test_formulas_are_safe_in_a_spreadsheet(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForSequenceClassification", **NAMES)
    file = table(tmp_path / "t.tsv", ["=a b", "a b"], ["x", "y"])
    path = tmp_path / "predicted.csv"
    options = ("--task", "text-classification", "--eval", file, "--no-record")
    assert warm.zoo("eval", model.checkpoint.path, *options, "--excel-safe").returncode == 2
    done = warm.zoo("eval", model.checkpoint.path, *options, "--predictions", path, "--excel-safe")
    assert done.returncode == 0, done.stderr
    with path.open(newline="") as lines:
        assert [row["text"] for row in csv.DictReader(lines)] == ["'=a b", "a b"]


def test_nothing_is_written_into_a_model(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForSequenceClassification", **NAMES)
    file = table(tmp_path / "t.tsv", TEXTS, ["x"] * 8)
    path = model.checkpoint.path / "predicted.csv"
    options = ("--task", "text-classification", "--eval", file, "--predictions", path)
    done = warm.zoo("eval", model.checkpoint.path, *options)
    assert done.returncode == 2 and "holds a model" in done.stderr
    assert not path.exists()
