"""Pairs that belong together, against BinaryClassificationEvaluator of sentence-transformers."""

from pathlib import Path
from typing import Any

import pytest

import zoo
from tests.checkpoints import Make
from tests.evaluation.conftest import Small
from tests.finetuning.making import texts, write_table
from tests.inference.conftest import converted
from tests.tasks.sentence_embedding.making import library_encoder
from zoo.errors import ZooError

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
TASK = "pair-classification"


def rows() -> list[dict[str, Any]]:
    anchors, others = texts(30, 5), texts(30, 6)
    return [
        {"text": a, "pair": f"{a} {b[:3]}" if k % 3 else b, "label": int(k % 3 > 0 or k == 9)}
        for k, (a, b) in enumerate(zip(anchors, others, strict=True))
    ]


def test_metrics_are_those_of_the_library(hub_checkpoint: Make, tmp_path: Path) -> None:
    evaluation: Any = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    source = hub_checkpoint("BertModel")
    model = converted(source, tmp_path / "model").path
    data = write_table(tmp_path / "pairs.jsonl", rows())
    evaluator = evaluation.BinaryClassificationEvaluator(
        *([row[name] for row in rows()] for name in ("text", "pair", "label")),
        similarity_fn_names=["cosine"],
        write_csv=False,
    )
    theirs = evaluator(library_encoder(source).eval())
    ours = zoo.evaluate(model, task=TASK, eval=data, pair="pair", backend="cpu")
    expected = {
        "average_precision": theirs["cosine_ap"],
        "matthews_correlation": theirs["cosine_mcc"],
        **{
            name: theirs[f"cosine_{name}"]
            for name in ("accuracy", "accuracy_threshold", "f1", "f1_threshold")
        },
        **{name: theirs[f"cosine_{name}"] for name in ("precision", "recall")},
    }
    assert {n: ours.metrics[n] for n in expected} == pytest.approx(expected, abs=1e-5)
    assert ours.metrics["samples"] == 30
    assert "f1_threshold" not in ours.details["intervals"]


def test_embeddings_are_cut(small: Small, tmp_path: Path) -> None:
    data = write_table(tmp_path / "pairs.jsonl", rows())
    encoder, _ = small("BertModel")
    whole, cut = (
        zoo.evaluate(encoder, task=TASK, eval=data, pair="pair", dim=dim).metrics
        for dim in (None, 4)
    )
    assert whole["average_precision"] != cut["average_precision"]


def test_a_cross_encoder_scores_pairs(small: Small, tmp_path: Path) -> None:
    data = write_table(tmp_path / "pairs.jsonl", rows())
    model, _ = small("BertForSequenceClassification", num_labels=1)
    found: list[Any] = []
    result = zoo.evaluate(model, task=TASK, eval=data, pair="pair", on_prediction=found.append)
    scores = [r["score"] for r in model.run("classify", [(r["text"], r["pair"]) for r in rows()])]
    assert [row["prediction"] for row in found] == pytest.approx(scores, abs=1e-5)
    assert sum(row["correct"] for row in found) / 30 == pytest.approx(result.metrics["accuracy"])


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("maybe", "the label is 'maybe', not 0 or 1; scores are correlated by --task sentence"),
        ("", "has no label"),
    ],
)
def test_other_labels_are_one_line(small: Small, tmp_path: Path, label: str, message: str) -> None:
    model, _ = small("BertModel")
    data = write_table(tmp_path / "pairs.jsonl", [*rows(), {**rows()[0], "label": label}])
    with pytest.raises(ZooError, match=message):
        zoo.evaluate(model, task=TASK, eval=data, pair="pair")
