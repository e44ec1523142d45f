"""Evaluations on tables, against predictions of transformers' models."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import warm
from tests.data.readers.making import class_label, write_parquet
from tests.evaluation.conftest import Small
from tests.evaluation.making import TEXTS, logits
from zoo.errors import UsageError
from zoo.metrics.ranks import regression_metrics
from zoo.plugins.tasks import evaluation_task
from zoo.tasks import make_evaluation

MULTI_LABEL = "multi_label_classification"


@pytest.mark.by_default("pairs")
@pytest.mark.parametrize("pairs", [False, True], ids=["texts", "pairs"])
def test_labels(small: Small, tmp_path: Path, pairs: bool) -> None:
    names = {"id2label": {0: "x", 1: "y", 2: "z"}, "label2id": {"x": 0, "y": 1, "z": 2}}
    model, source = small("BertForSequenceClassification", **names)
    predicted = logits(source, pairs).argmax(-1).tolist()
    labels = ["xyz"[k] if row % 3 else "x" for row, k in enumerate(predicted)]
    rows = (f"{t}\t{t[::-1]}\t{label}" for t, label in zip(TEXTS, labels, strict=True))
    table = tmp_path / "t.tsv"
    table.write_text("\n".join(["s\tt\tl", *rows]))
    options = {"text": "s", "label": "l", **({"pair": "t"} if pairs else {})}
    task = make_evaluation("text-classification", model.checkpoint, model.session, **options)
    result = task.evaluate([table])
    hits = sum("xyz"[k] == label for k, label in zip(predicted, labels, strict=True))
    assert result.metrics["accuracy"] == pytest.approx(hits / len(TEXTS))
    assert result.metrics["samples"] == len(TEXTS)
    counts = {name: labels.count(name) for name in "xyz"}
    assert {name: row["samples"] for name, row in result.details["classes"].items()} == counts
    confusion = result.details["confusion"]
    assert sum(confusion[name].get(name, 0) for name in "xyz") == hits
    low, high = result.details["intervals"]["accuracy"]
    assert 0 <= low <= result.metrics["accuracy"] <= high <= 1


@pytest.mark.by_default("names1")
@pytest.mark.parametrize("names", [None, ["y", "x"], ["0", "1"]])
def test_classes_of_a_parquet_file(small: Small, tmp_path: Path, names: list[str] | None) -> None:
    """Their names are the model's labels, or their numbers if it has numbers or no names."""
    labels = {"id2label": dict(enumerate(names))} if names else {}
    model, source = small("BertForSequenceClassification", **labels)
    predicted = logits(source).argmax(-1).tolist()
    columns = {"text": TEXTS, "label": [0, 1] * 4}
    classes = {"label": class_label("x", "y")}
    table = write_parquet(tmp_path / "t.parquet", columns, classes)
    task = make_evaluation("text-classification", model.checkpoint, model.session)
    expected = [1, 0] * 4 if names == ["y", "x"] else [0, 1] * 4
    hits = sum(map(int.__eq__, predicted, expected))
    assert task.evaluate([table]).metrics["accuracy"] == pytest.approx(hits / len(TEXTS))


def test_numbers(small: Small, tmp_path: Path) -> None:
    model, source = small("BertForSequenceClassification", num_labels=1, problem_type="regression")
    predicted = logits(source)[:, 0].double().numpy()
    table = tmp_path / "t.jsonl"
    rows = [{"text": t, "label": k * 0.5} for k, t in enumerate(TEXTS)]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = make_evaluation("regression", model.checkpoint, model.session)
    expected = regression_metrics(predicted, torch.arange(8).double().numpy() / 2)
    metrics = dict(task.evaluate([table]).metrics)
    assert metrics.pop("samples") == 8
    assert metrics == pytest.approx(expected, rel=1e-4)


@pytest.mark.long
def test_several_labels(small: Small, tmp_path: Path) -> None:
    names = {"id2label": {0: "x", 1: "y"}, "label2id": {"x": 0, "y": 1}}
    model, source = small("BertForSequenceClassification", problem_type=MULTI_LABEL, **names)
    predicted = (logits(source) >= 0).tolist()
    table = tmp_path / "t.tsv"
    rows = (
        f"{t}\t{','.join(n for n, on in zip('xy', row, strict=True) if on)}"
        for t, row in zip(TEXTS, predicted, strict=True)
    )
    table.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    task = make_evaluation("multi-label", model.checkpoint, model.session)
    assert task.evaluate([table]).metrics["exact_match"] == 1.0
    table.write_text(table.read_text().replace(",", "; "))
    separated = ("multi-label", model.checkpoint, model.session)
    task = make_evaluation(*separated, label_separator=";")
    assert task.evaluate([table]).metrics["exact_match"] == 1.0
    with pytest.raises(UsageError, match="the separator of labels is empty"):
        make_evaluation(*separated, label_separator="")


@pytest.mark.parametrize(
    "suited, architecture, changes",
    [
        ("multi-label", "BertForSequenceClassification", {"problem_type": MULTI_LABEL}),
        ("regression", "BertForSequenceClassification", {"num_labels": 1}),
        ("text-classification", "BertForSequenceClassification", {"num_labels": 2}),
        ("token-classification", "BertForTokenClassification", {"num_labels": 2}),
    ],
)
def test_the_evaluation_of_a_head_is_named(
    suited: str, architecture: str, changes: dict[str, Any], small: Small
) -> None:
    checkpoint = replace(small(architecture, **changes)[0].checkpoint, reference="mine")
    for name in ("text-classification", "regression", "multi-label", "token-classification"):
        if name == suited:
            evaluation_task(name).require_supported(checkpoint)
            continue
        with pytest.raises(
            UsageError, match=f"^mine, with .* for {suited}, and not for {name}"
        ) as e:
            evaluation_task(name).require_supported(checkpoint)
        assert e.value.hint == f"evaluate it with --task {suited}"


def test_default_names_are_numbers_and_others_are_refused(small: Small, tmp_path: Path) -> None:
    model, source = small("BertForSequenceClassification")
    predicted = logits(source).argmax(-1).tolist()
    table = tmp_path / "t.tsv"
    rows = [f"{t}\t{k}" for t, k in zip(TEXTS, predicted, strict=True)]
    table.write_text("\n".join(rows))
    task = make_evaluation(
        "text-classification", model.checkpoint, model.session, text="1", label="2"
    )
    assert task.evaluate([table]).metrics["accuracy"] == 1.0
    table.write_text("\n".join([*rows, "a\t2"]))
    with pytest.raises(UsageError, match=r"t\.tsv:9: the model has no label '2'; it has 0, 1"):
        task.evaluate([table])


def test_the_command_prints_intervals(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForSequenceClassification")
    (tmp_path / "t.tsv").write_text("text\tlabel\na b\t0\nc\t1\n")
    done = warm.zoo(
        *("eval", model.checkpoint.path, "--task", "text-classification"),
        *("--eval", tmp_path / "t.tsv", "--backend", "cpu"),
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split("  ")[-1].strip() == "95 % interval"
    assert lines[1].startswith("accuracy ") and " to " in lines[1]
    assert done.stderr.count("samples of each label") == 1


def test_figures_have_the_labels_and_counts(small: Small, tmp_path: Path) -> None:
    names = {"id2label": {0: "good", 1: "bad"}, "label2id": {"good": 0, "bad": 1}}
    model, _ = small("BertForSequenceClassification", **names)
    table = tmp_path / "t.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{t}\tgood\n" for t in TEXTS))
    options = ("--task", "text-classification", "--eval", str(table), "--json")
    figures = ("--figures", str(tmp_path / "figures"))
    done = warm.zoo("eval", str(model.checkpoint.path), *options, *figures)
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert 0 <= value["metrics"]["calibration_error"] <= 1
    assert sum(point["samples"] for point in value["reliability"]) == len(TEXTS)
    drawn = {path.name: path.read_text() for path in (tmp_path / "figures").iterdir()}
    assert sorted(drawn) == ["confusion.svg", "reliability.svg"]
    assert {">good<", ">bad<"} <= {*re.findall(r">\w+<", drawn["confusion.svg"])}
    refused = warm.zoo(
        "eval", model.checkpoint.path, "--task", "perplexity", "--eval", str(table), *figures
    )
    assert refused.returncode == 2 and "perplexity has no option --figures" in refused.stderr


@pytest.mark.long
def test_the_separator_of_labels_is_an_option(small: Small, tmp_path: Path) -> None:
    names = {"id2label": {0: "x", 1: "y"}, "label2id": {"x": 0, "y": 1}}
    kind = {"problem_type": "multi_label_classification"}
    model, _ = small("BertForSequenceClassification", **names, **kind)
    (tmp_path / "t.tsv").write_text("text\tlabel\na\tx|y\n")
    data = ("--eval", tmp_path / "t.tsv", "--label-separator", "|", "--json")
    done = warm.zoo("eval", model.checkpoint.path, "--task", "multi-label", *data)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["label_separator"] == "|"
    refused = warm.zoo("eval", model.checkpoint.path, "--task", "regression", *data)
    assert "regression has no option --label-separator" in refused.stderr


def test_a_class_alone(small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = {"id2label": {0: "x", 1: "y"}, "label2id": {"x": 0, "y": 1}}
    model, _ = small("BertForSequenceClassification", **names)
    table = tmp_path / "t.tsv"
    table.write_text("\n".join(["text\tlabel", *(f"{text}\ty" for text in TEXTS)]))
    make_evaluation("text-classification", model.checkpoint, model.session).evaluate([table])
    assert "all samples to evaluate have the label 'y'" in caplog.text


@pytest.mark.long
def test_equal_numbers(small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, _ = small("BertForSequenceClassification", num_labels=1, problem_type="regression")
    table = tmp_path / "t.tsv"
    table.write_text("\n".join(["text\tlabel", *(f"{text}\t2" for text in TEXTS)]))
    make_evaluation("regression", model.checkpoint, model.session).evaluate([table])
    assert "all samples to evaluate have the label 2: correlations are 0" in caplog.text


def test_the_nearest_task_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("text\tlabel\na\tx\n")
    done = warm.zoo("eval", "bert", "--task", "token-clasification", "--eval", tmp_path / "t.tsv")
    assert done.returncode == 2
    assert "did you mean token-classification" in done.stderr


@pytest.mark.parametrize("order", [["z", "x"], ["y", "z", "x"]], ids=["some", "other order"])
def test_labels_are_matched_by_name(small: Small, tmp_path: Path, order: list[str]) -> None:
    """Whatever their order and number in the data; ``f1_macro`` is scikit-learn's."""
    from sklearn.metrics import f1_score

    names = {"id2label": {0: "x", 1: "y", 2: "z"}, "label2id": {"x": 0, "y": 1, "z": 2}}
    model, source = small("BertForSequenceClassification", **names)
    predicted = ["xyz"[k] for k in logits(source).argmax(-1).tolist()]
    labels = [order[k % len(order)] for k in range(len(TEXTS))]
    table = tmp_path / "t.tsv"
    rows = (f"{text}\t{label}" for text, label in zip(TEXTS, labels, strict=True))
    table.write_text("\n".join(["text\tlabel", *rows]))
    task = make_evaluation("text-classification", model.checkpoint, model.session)
    metrics = task.evaluate([table]).metrics
    hits = sum(map(str.__eq__, labels, predicted))
    assert metrics["accuracy"] == pytest.approx(hits / len(TEXTS))
    expected = f1_score(labels, predicted, average="macro", zero_division=0)
    assert metrics["f1_macro"] == pytest.approx(expected)
    table.write_text("text\tlabel\na\tX\n")
    with pytest.raises(UsageError, match="the model has no label 'X'") as caught:
        task.evaluate([table])
    assert caught.value.hint.startswith("it has x, y, z ('x' and 'X' differ in case), or leave it")
