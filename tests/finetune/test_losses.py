"""Losses of the first steps equal those of a loop over transformers' model on the same batches."""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tests.finetune.conftest import Pretrained
from tests.finetune.making import (
    HERE,
    finetune,
    labelled,
    reference_losses,
    settings,
    setup_of,
    texts,
    training_losses,
    write_table,
)
from zoo.finetune.config import build_config
from zoo.objectives.base import Batch
from zoo.training.build import build_model


def losses_of_transformers(
    run: Path, source: Path, architecture: str = "BertForSequenceClassification"
) -> list[float]:
    """Train transformers' model on the batches of a run."""
    import transformers

    model: Any = getattr(transformers, architecture).from_pretrained(source)

    def batch_loss(batch: Batch) -> tuple[Tensor, int]:
        return model(**batch.tensors).loss * batch.rows, batch.rows

    return reference_losses(run, model, batch_loss)


@pytest.mark.parametrize("pair", [False, True], ids=["texts", "pairs"])
def test_classification(pretrained: Pretrained, tmp_path: Path, pair: bool) -> None:
    names = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    model, source = pretrained("BertForSequenceClassification", **names)
    rows = [
        {"text": t, **({"other": t[::-1]} if pair else {}), "label": "yes" if t[0] < "e" else "no"}
        for t in texts(40)
    ]
    columns = {"data": {"pair": "other"}} if pair else {}
    tree = settings(model, write_table(tmp_path / "t.tsv", rows), **columns)
    run = finetune(tmp_path / "run", tree)
    expected = losses_of_transformers(run, source)
    assert training_losses(run) == pytest.approx(expected, abs=1e-5)
    assert expected[-1] != pytest.approx(expected[0], abs=1e-2), "the weights changed"


def test_regression(pretrained: Pretrained, tmp_path: Path) -> None:
    model, source = pretrained(
        "BertForSequenceClassification", num_labels=1, problem_type="regression"
    )
    rows = [{"text": t, "label": len(t) / 10} for t in texts(40)]
    tree = settings(model, write_table(tmp_path / "t.tsv", rows), task="regression")
    run = finetune(tmp_path / "run", tree)
    expected = losses_of_transformers(run, source)
    assert training_losses(run) == pytest.approx(expected, abs=1e-5)


def test_several_labels(pretrained: Pretrained, tmp_path: Path) -> None:
    model, source = pretrained(
        "BertForSequenceClassification",
        id2label=dict(enumerate("abc")),
        label2id={letter: k for k, letter in enumerate("abc")},
        problem_type="multi_label_classification",
    )
    rows = [{"text": t, "label": [c for c in "abc" if c in t]} for t in texts(40)]
    tree = settings(model, write_table(tmp_path / "t.jsonl", rows), task="multi-label")
    run = finetune(tmp_path / "run", tree)
    expected = losses_of_transformers(run, source)
    assert training_losses(run) == pytest.approx(expected, abs=1e-5)


def test_labels_of_settings_may_be_numbers(tmp_path: Path) -> None:
    values = settings("bert", tmp_path / "t.tsv", data={"labels": [1, 0]})
    config = build_config(values, {"class_weights": {0: 1, 1: 3}})
    assert config.data.labels == ("1", "0")
    assert config.class_weights == {"0": 1.0, "1": 3.0}


def test_class_weights_multiply_the_loss_of_a_label(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    table = labelled(tmp_path / "t.tsv")
    weighted = settings(model, table, class_weights={"no": 3.0, "yes": 0.5}, max_steps=1)
    run = finetune(tmp_path / "run", weighted)
    setup = setup_of(run)
    loader = setup.train_dataloader(HERE)
    (first, second), task = loader.make_batches(0), setup.objective
    loader.close()
    module = build_model(setup).module
    setup.load_pretrained(module)
    total = 0.0
    for batch in (first, second):
        logits = task.forward(module, batch.tensors).logits[task.name].double()
        log_probs = logits.log_softmax(-1)
        for row, label in enumerate(batch.tensors["labels"].tolist()):
            total -= (3.0, 0.5)[label] * log_probs[row, label].item()
    assert training_losses(run) == [pytest.approx(total / 8, abs=1e-5)]


def test_balanced_weights_have_a_mean_of_one(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    rows = [{"text": t, "label": "a" if k % 4 else "b"} for k, t in enumerate(texts(40))]
    tree = settings(model, write_table(tmp_path / "t.tsv", rows), class_weights="balanced")
    setup = setup_of(finetune(tmp_path / "run", {**tree, "max_steps": 1}))
    labels = setup.train_rows.values["labels"]
    weights: Any = setup.objective
    by_label = dict(zip("ab", weights.weights, strict=True))
    share = float((labels == 0).mean())
    assert by_label["a"] == pytest.approx(1 / (2 * share))
    assert by_label["b"] == pytest.approx(1 / (2 * (1 - share)))
