"""Acceptability from frozen embeddings against sentence-transformers and scikit-learn."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

import zoo
from tests.checkpoints import Make
from tests.inference.conftest import converted
from tests.suites.frozen_folders import PHENOMENA, make_cola
from tests.suites.reference import FOLDED, Reference, best_of_folds, regression

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
FLOAT64: dict[str, Any] = {"backend": "cpu", "dtype": "float64"}
SUITE = "cola-probing"


def judged(path: Path) -> tuple[list[str], list[int]]:
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return [row[3] for row in rows], [int(row[1]) for row in rows]


def test_correlations_of_domains_and_phenomena(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertModel")
    reference = Reference(source)
    data = make_cola(tmp_path / "data")
    texts, labels = judged(data / "raw" / "in_domain_train.tsv")
    train = reference.embed(texts), np.array(labels)
    classifier = regression(*train, best_of_folds(*train, FOLDED, 10, matthews_corrcoef))
    predictions: dict[str, int] = {}
    correct: dict[str, int] = {}
    model = converted(source, tmp_path / "model").path
    result = zoo.evaluate(model, suite=SUITE, eval=data, **FLOAT64)
    tasks = result.details["tasks"]
    for name, file in (("in-domain", "in_domain_dev"), ("out-of-domain", "out_of_domain_dev")):
        texts, labels = judged(data / "raw" / f"{file}.tsv")
        predicted = classifier.predict(reference.embed(texts))
        correlation = matthews_corrcoef(labels, predicted)
        assert tasks[name] == pytest.approx(
            {
                "matthews_correlation": correlation,
                "accuracy": np.mean(predicted == labels),
                "score": 100 * correlation,
            }
        )
        predictions.update(zip(texts, predicted.tolist(), strict=True))
        correct.update(zip(texts, labels, strict=True))
    mean = np.mean([tasks[name]["score"] for name in ("in-domain", "out-of-domain")])
    assert result.metrics["average"] == pytest.approx(mean)
    annotations = data / "raw" / "CoLA_grammatical_annotations_major_features.tsv"
    rows = [line.split("\t") for line in annotations.read_text().splitlines()[1:]]
    members = {"all": [row[3] for row in rows]}
    for number, name in enumerate(PHENOMENA):
        members[name] = [row[3] for row in rows if row[4 + number] == "1"]
    for name, sentences in members.items():
        expected = matthews_corrcoef(
            [correct[text] for text in sentences], [predictions[text] for text in sentences]
        )
        assert tasks["phenomena"][name] == pytest.approx(expected), name


def test_the_annotations_are_optional(hub_checkpoint: Make, tmp_path: Path) -> None:
    data = make_cola(tmp_path / "data")
    (data / "raw" / "CoLA_grammatical_annotations_major_features.tsv").unlink()
    (data / "raw" / "out_of_domain_dev.tsv").unlink()
    model = converted(hub_checkpoint("BertModel"), tmp_path / "model").path
    result = zoo.evaluate(model, suite=SUITE, eval=data / "raw", **FLOAT64)
    assert list(result.details["tasks"]) == ["in-domain"]
    assert list(result.details["missing_files"]) == ["out-of-domain"]
    (record,) = json.loads((model / "zoo.json").read_text())["evaluations"]
    assert record["task"] == "CoLA in domain"
    assert list(record["data"]) == ["in_domain_train.tsv", "in_domain_dev.tsv"]
    metrics = result.details["tasks"]["in-domain"]
    assert record["metrics"] == {
        name: pytest.approx(metrics[name]) for name in ("matthews_correlation", "accuracy")
    }
