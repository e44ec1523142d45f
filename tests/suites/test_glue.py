"""GLUE against transformers, scikit-learn and SciPy, and folders that lack tasks."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
import transformers
from scipy import stats
from sklearn import metrics

import zoo
from tests import warm
from tests.checkpoints import Make
from tests.inference.conftest import converted
from tests.suites.glue_folder import LAYOUTS, make_diagnostics, make_glue, make_rows
from zoo.errors import SourceError, UsageError
from zoo.finetuning.config import finetune_config

# Columns of the texts.
TEXTS = {
    "cola": ("sentence",),
    "sst2": ("sentence",),
    "mrpc": ("#1 String", "#2 String"),
    "stsb": ("sentence1", "sentence2"),
    "qqp": ("question1", "question2"),
    "mnli": ("sentence1", "sentence2"),
    "qnli": ("question", "sentence"),
    "rte": ("sentence1", "sentence2"),
    "wnli": ("sentence1", "sentence2"),
}
LABELS = {"mrpc": "Quality", "stsb": "score", "qqp": "is_duplicate", "mnli": "gold_label"}
FEW = ("cola", "stsb", "mnli", "qqp")


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    return make_glue(tmp_path / "GLUE", 24)


@pytest.fixture
def classifiers(hub_checkpoint: Make, tmp_path: Path) -> Path:
    """A directory with a classifier for each of some tasks."""
    for task in FEW:
        make_classifier(hub_checkpoint, task, tmp_path)
    return tmp_path / "runs"


def make_classifier(make: Make, task: str, folder: Path) -> None:
    labels = LAYOUTS[task].labels or ("LABEL_0",)
    source = make(
        "BertForSequenceClassification",
        task,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
        initializer_range=0.5,
        max_position_embeddings=64,
    )
    (folder / "runs").mkdir(exist_ok=True)
    converted(source, folder / "runs" / task)


def reference_logits(source: Path, texts: Sequence[tuple[str, ...]]) -> torch.Tensor:
    """Return the logits of transformers, one text at a time."""
    model: Any = transformers.BertForSequenceClassification.from_pretrained(source).eval()
    tokenizer = transformers.BertTokenizer(str(source / "vocab.txt"))
    rows = []
    with torch.no_grad():
        for row in texts:
            rows.append(model(**tokenizer(*row, return_tensors="pt")).logits[0])
    return torch.stack(rows)


def predicted_labels(task: str, source: Path, texts: Sequence[tuple[str, ...]]) -> list[str]:
    numbers = reference_logits(source, texts).argmax(-1).tolist()
    return [LAYOUTS[task].labels[number] for number in numbers]


def reference_metrics(task: str, source: Path) -> dict[str, float]:
    """Return the metrics of GLUE's site, computed by scikit-learn and SciPy."""
    layout = LAYOUTS[task]
    values = {}
    for split in layout.dev:
        rows = make_rows(task, split, 24)
        logits = reference_logits(
            source, [tuple(row[column] for column in TEXTS[task]) for row in rows]
        )
        actual = [row[LABELS.get(task, "label")] for row in rows]
        if task == "stsb":
            scores = logits[:, 0].double().numpy()
            numbers = [float(text) for text in actual]
            values["pearson"] = stats.pearsonr(scores, numbers)[0]
            values["spearman"] = stats.spearmanr(scores, numbers)[0]
            continue
        predicted = [layout.labels[number] for number in logits.argmax(-1).tolist()]
        if task == "cola":
            values["matthews_correlation"] = metrics.matthews_corrcoef(actual, predicted)
        elif task == "mnli":
            name = f"accuracy_{split.removeprefix('dev_')}"
            values[name] = metrics.accuracy_score(actual, predicted)
        else:
            values["accuracy"] = metrics.accuracy_score(actual, predicted)
            if task in ("mrpc", "qqp"):
                values["f1"] = metrics.f1_score(actual, predicted, pos_label="1")
    return values


def test_scores_equal_those_of_other_libraries(
    glue: Path, classifiers: Path, tmp_path: Path
) -> None:
    result = zoo.evaluate(classifiers, suite="glue", eval=glue, record=False)
    assert list(result.details["tasks"]) == [*(task for task in LAYOUTS if task in FEW), "ax"]
    scores = []
    rows = make_diagnostics(24)
    texts = [(row["Premise"], row["Hypothesis"]) for row in rows]
    predicted = predicted_labels("mnli", tmp_path / "mnli", texts)
    correlation = metrics.matthews_corrcoef([row["Label"] for row in rows], predicted)
    diagnostics = result.details["tasks"].pop("ax")
    assert diagnostics == pytest.approx(
        {"matthews_correlation": correlation, "score": 100 * correlation}
    )
    for task, values in result.details["tasks"].items():
        expected = reference_metrics(task, tmp_path / task)
        score = 100 * mean(expected.values())
        assert values == pytest.approx({**expected, "score": score}, abs=1e-4), task
        scores.append(score)
    assert result.metrics == {"average": pytest.approx(mean(scores), abs=1e-4)}
    assert result.details["missing"] == [task for task in LAYOUTS if task not in FEW]
    one = zoo.evaluate(classifiers, suite="glue", tasks="cola", eval=glue, limit=9, record=False)
    assert list(one.details["tasks"]) == ["cola"] and one.details["missing"] == []


def test_a_task_without_files_is_named(glue: Path, classifiers: Path) -> None:
    shutil.rmtree(glue / "STS-B")
    command = ("eval", str(classifiers), "--suite", "glue", str(glue), "--no-record")
    done = warm.zoo(*command, "--tasks", "cola,stsb")
    assert done.returncode == 4
    lines = done.stderr.splitlines()
    assert "stsb is not evaluated: " in lines[0] and "STS-B/dev.tsv is not there" in lines[0]
    assert "the files of stsb are missing; add them" in lines[-1]
    assert "average of 1 of 2" in done.stdout and "missing: stsb" in done.stdout
    done = warm.zoo(*command, "--tasks", "cola,qqp", "--json")
    value = json.loads(done.stdout)
    assert done.returncode == 0 and list(value["tasks"]) == ["cola", "qqp"]
    assert not value["missing"] and not value["missing_files"]
    with pytest.raises(SourceError, match=r"STS-B.dev.tsv is not there"):
        zoo.evaluate(classifiers, suite="glue", tasks=["stsb"], eval=glue)


def test_a_label_outside_of_the_task_is_named(glue: Path, classifiers: Path) -> None:
    for folder, split, label in (("CoLA", "train", 2), ("QQP", "dev", 2), ("STS-B", "dev", "high")):
        path = glue / folder / f"{split}.tsv"
        *lines, last = path.read_text().splitlines()
        cells = last.split("\t")
        cells[1 if folder == "CoLA" else -1] = str(label)
        path.write_text("\n".join((*lines, "\t".join(cells), "")))
    command = ("--suite", "glue", str(glue), "--tasks")
    done = warm.zoo("eval", classifiers, *command, "cola,qqp,stsb", "--no-record")
    assert done.returncode == 2
    *_, message, stsb, qqp = done.stderr.splitlines()
    assert message.startswith("error: stsb, qqp failed")
    assert "STS-B/dev.tsv:25: the label is 'high', which is not a number" in stsb
    assert "QQP/dev.tsv:25: the label is '2', not 0 or 1; correct the row, or leave it out" in qqp
    assert "--skip-invalid" not in done.stderr, "suites have no such option"
    done = warm.zoo("finetune", classifiers / "cola", *command, "cola", "-o", classifiers / "runs")
    assert done.returncode == 2
    assert "CoLA/train.tsv:24: the label is '2', not 0 or 1" in done.stderr.splitlines()[-1]


def test_broken_rows_of_qqp_are_left_out(glue: Path, classifiers: Path) -> None:
    call: dict[str, Any] = {"suite": "glue", "tasks": ["qqp"], "eval": glue, "record": False}
    expected = zoo.evaluate(classifiers, **call)
    path = glue / "QQP" / "dev.tsv"
    header, *lines = path.read_text().splitlines()
    # A line break in a text makes two rows of one, as in the published files.
    rows = (header, *lines[:5], "99\t7\t8\ta b", "c d?\te f\t1", *lines[5:], "")
    path.write_text("\n".join(rows))
    assert zoo.evaluate(classifiers, **call) == expected
    shutil.copy(path, glue / "QQP" / "train.tsv")
    requested = {"task": "glue/qqp", "data": {"train": [str(glue)]}}
    assert finetune_config({**requested, "family": "bert"}, {}).data.skip_invalid
    for row in (path, glue / "CoLA" / "dev.tsv"):
        row.write_text(row.read_text() + "a\n")
    with pytest.raises(UsageError, match=r"CoLA.dev.tsv:25 "):
        zoo.evaluate(classifiers, **{**call, "tasks": ["cola"]})


def test_files_of_the_leaderboard(glue: Path, classifiers: Path, tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    (glue / "QQP" / "test.tsv").unlink()
    command = ("eval", str(classifiers), "--suite", "glue", str(glue), "--no-record")
    done = warm.zoo(*command, "--predictions", str(folder))
    assert done.returncode == 0, done.stderr
    assert "qqp has no test file" in done.stderr
    names = ["AX.tsv", "CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "STS-B.tsv"]
    assert sorted(path.name for path in folder.iterdir()) == names
    splits = {"CoLA": ("cola", "test"), "MNLI-mm": ("mnli", "test_mismatched")}
    for name, (task, split) in splits.items():
        columns = TEXTS[task]
        texts = [tuple(row[column] for column in columns) for row in make_rows(task, split, 24)]
        lines = ["index\tprediction"]
        for number, label in enumerate(predicted_labels(task, tmp_path / task, texts)):
            lines.append(f"{number}\t{label}")
        assert (folder / f"{name}.tsv").read_text().splitlines() == lines
    similarities = [
        float(line.partition("\t")[2])
        for line in (folder / "STS-B.tsv").read_text().splitlines()[1:]
    ]
    texts = [(row["sentence1"], row["sentence2"]) for row in make_rows("stsb", "test", 24)]
    logits = reference_logits(tmp_path / "stsb", texts)[:, 0].clamp(0, 5)
    assert similarities == pytest.approx(logits.tolist(), abs=6e-4)
    with pytest.raises(UsageError, match=r"AX.tsv exists|CoLA.tsv exists"):
        zoo.evaluate(classifiers, suite="glue", eval=glue, predictions=folder)


def test_results_are_recorded_in_each_model(glue: Path, classifiers: Path) -> None:
    zoo.evaluate(classifiers, suite="glue", tasks=["mnli", "cola"], eval=glue)
    records = {}
    for task in ("mnli", "cola", "qqp"):
        manifest = json.loads((classifiers / task / "zoo.json").read_text())
        records[task] = [list(entry["data"]) for entry in manifest.get("evaluations", [])]
    assert records == {
        "mnli": [["dev_matched.tsv"], ["dev_mismatched.tsv"]],
        "cola": [["dev.tsv"]],
        "qqp": [],
    }


def test_wrong_calls_are_refused(glue: Path, classifiers: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"suite": "glu"}, "no suite is called 'glu'; did you mean glue"),
        ({"tasks": "kola"}, "GLUE has no task 'kola'; did you mean cola"),
        ({"tasks": "rte"}, "there is no model of rte; select tasks that have one"),
        ({"task": "regression"}, "--task and --suite exclude each other"),
        ({"text": "a"}, "glue has no option --text"),
        ({"eval": ()}, "--suite glue reads one directory, and 0 are given"),
        (
            {"model": classifiers / "cola"},
            "does not answer all tasks of GLUE; give a directory with",
        ),
        ({"suite": None, "task": "regression"}, "--tasks selects tasks of a suite"),
    ]
    for changes, message in cases:
        call: dict[str, Any] = {
            "model": classifiers,
            "suite": "glue",
            "eval": glue,
            "tasks": "cola",
            **changes,
        }
        with pytest.raises(UsageError, match=message):
            zoo.evaluate(call.pop("model"), **call)
    (glue / "CoLA" / "dev.tsv").write_text("gj04\t2\t*\ta b\n")
    with pytest.raises(UsageError, match=r"dev.tsv:1"):
        zoo.evaluate(classifiers, suite="glue", tasks="cola", eval=glue)
