"""SentEval's tasks against sentence-transformers and scikit-learn, in SentEval's procedures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

import zoo
from tests.checkpoints import Make
from tests.inference.conftest import converted
from tests.suites.frozen_folders import CLASS_FILES, PROBING, make_probing, make_senteval
from tests.suites.reference import (
    FOLDED,
    Reference,
    best_of_folds,
    by_length,
    nested,
    regression,
    split_words,
    validated,
)
from zoo.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
FLOAT64: dict[str, Any] = {"backend": "cpu", "dtype": "float64"}
TREC_LABELS = ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"]


def accuracies(source: Path, folder: Path, data: Path, suite: str, tasks: str) -> Any:
    model = converted(source, folder / "model").path
    return zoo.evaluate(model, suite=suite, eval=data, tasks=tasks, **FLOAT64).details["tasks"]


def features(reference: Reference, rows: list[tuple[str, int]]) -> tuple[Any, Any]:
    texts, labels = by_length(rows)
    return reference.embed(texts), labels


def sst(path: Path) -> list[tuple[str, int]]:
    cells = [line.split("\t") for line in path.read_text().splitlines()]
    return [(split_words(text), int(label)) for text, label in cells]


def mrpc(reference: Reference, path: Path) -> tuple[Any, Any]:
    cells = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    rows = [(split_words(row[3]), split_words(row[4]), int(row[0])) for row in cells]
    rows.sort(key=lambda row: (len(row[0].split()), len(row[1].split()), row[2]))
    first = reference.embed([row[0] for row in rows])
    second = reference.embed([row[1] for row in rows])
    return np.c_[np.abs(first - second), first * second], np.array([row[2] for row in rows])


def test_a_validation_set_and_pairs(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertModel")
    reference = Reference(source)
    data = make_senteval(tmp_path / "data")
    tasks = accuracies(source, tmp_path, data, "senteval", "sst2,mrpc")
    files = data / "downstream" / "SST" / "binary"
    splits = [features(reference, sst(files / f"sentiment-{s}")) for s in ("train", "dev", "test")]
    assert tasks["sst2"]["accuracy"] == pytest.approx(validated(*splits))
    files = data / "downstream" / "MRPC"
    train = mrpc(reference, files / "msr_paraphrase_train.txt")
    test = mrpc(reference, files / "msr_paraphrase_test.txt")
    classifier = regression(*train, best_of_folds(*train, FOLDED, 10))
    predictions = classifier.predict(test[0])
    assert tasks["mrpc"] == pytest.approx(
        {
            "accuracy": np.mean(predictions == test[1]),
            "f1": f1_score(test[1], predictions),
            "score": 100 * np.mean(predictions == test[1]),
        }
    )


@pytest.mark.long
def test_folds_within_folds_and_questions(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertModel")
    reference = Reference(source)
    data = make_senteval(tmp_path / "data")
    tasks = accuracies(source, tmp_path, data, "senteval", "mr,cr,subj,mpqa,trec")
    for name, files in CLASS_FILES.items():
        rows = []
        for file, label in zip(files, (1, 0), strict=True):
            text = (data / "downstream" / name / file).read_text("latin-1")
            rows += [(split_words(line), label) for line in text.splitlines()]
        expected = nested(*features(reference, rows))
        assert tasks[name.lower()]["accuracy"] == pytest.approx(expected), name
    splits = []
    for file in ("train_5500.label", "TREC_10.label"):
        rows = []
        for line in (data / "downstream" / "TREC" / file).read_text("latin-1").splitlines():
            coarse, _, question = line.partition(":")
            rows.append((split_words(question.split(" ", 1)[1]), TREC_LABELS.index(coarse)))
        splits.append(features(reference, rows))
    train, test = splits
    classifier = regression(*train, best_of_folds(*train, FOLDED, 10))
    assert tasks["trec"]["accuracy"] == pytest.approx(classifier.score(*test))


@pytest.mark.long
def test_probing_tasks(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertModel")
    reference = Reference(source)
    data = make_probing(tmp_path / "data")
    tasks = accuracies(source, tmp_path, data, "senteval-probing", "")
    assert len(tasks) == len(PROBING)
    for name, labels in PROBING.items():
        rows = [
            line.split("\t") for line in (data / "probing" / f"{name}.txt").read_text().splitlines()
        ]
        splits = []
        for split in ("tr", "va", "te"):
            split_rows = [(row[-1], labels.index(row[1])) for row in rows if row[0] == split]
            splits.append(features(reference, split_rows))
        assert tasks[name.replace("_", "-")]["accuracy"] == pytest.approx(validated(*splits)), name


def test_data_that_is_too_small(hub_checkpoint: Make, tmp_path: Path) -> None:
    data = make_senteval(tmp_path / "data", 4)
    with pytest.raises(UsageError, match="10 folds need a class with 10 texts, and the largest"):
        accuracies(hub_checkpoint("BertModel"), tmp_path, data, "senteval", "mr")
