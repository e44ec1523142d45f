"""Losses of the first steps equal those of a loop over transformers' model on the same batches."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.finetune.conftest import Pretrained
from tests.finetune.making import finetune, labelled, settings, setup_of, texts, write_table
from tests.training.runs import records
from zoo.training.distributed.context import DistContext
from zoo.training.optim.lr_scheduler import lr_multiplier

HERE = DistContext(0, 1, torch.device("cpu"))


def reference_losses(
    run: Path, source: Path, architecture: str, **loss_options: Any
) -> list[float]:
    """Train transformers' model with torch's AdamW on the batches of a run."""
    import transformers

    setup = setup_of(run)
    config = setup.config
    model: Any = getattr(transformers, architecture).from_pretrained(source)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.optimizer.learning_rate, weight_decay=0.0
    )
    loader, losses = setup.train_dataloader(HERE), []
    for step in range(config.max_steps):
        factor = lr_multiplier(config.lr_scheduler, step, config.max_steps)
        for group in optimizer.param_groups:
            group["lr"] = config.optimizer.learning_rate * factor
        batches = loader.make_batches(step)
        count, total = sum(batch.rows for batch in batches), 0.0
        for batch in batches:
            loss = model(**batch.tensors, **loss_options).loss * batch.rows / count
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    loader.close()
    return losses


def training_losses(run: Path) -> list[float]:
    return [record["loss"] for record in records(run)]


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
    expected = reference_losses(run, source, "BertForSequenceClassification")
    assert training_losses(run) == pytest.approx(expected, abs=1e-5)
    assert expected[-1] != pytest.approx(expected[0], abs=1e-2), "the weights changed"


def test_regression(pretrained: Pretrained, tmp_path: Path) -> None:
    model, source = pretrained(
        "BertForSequenceClassification", num_labels=1, problem_type="regression"
    )
    rows = [{"text": t, "label": len(t) / 10} for t in texts(40)]
    tree = settings(model, write_table(tmp_path / "t.tsv", rows), task="regression")
    run = finetune(tmp_path / "run", tree)
    expected = reference_losses(run, source, "BertForSequenceClassification")
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
    expected = reference_losses(run, source, "BertForSequenceClassification")
    assert training_losses(run) == pytest.approx(expected, abs=1e-5)


def test_class_weights_multiply_the_loss_of_a_label(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    table = labelled(tmp_path / "t.tsv")
    weighted = settings(model, table, class_weights={"no": 3.0, "yes": 0.5}, max_steps=1)
    run = finetune(tmp_path / "run", weighted)
    setup = setup_of(run)
    loader = setup.train_dataloader(HERE)
    (first, second), task = loader.make_batches(0), setup.objective
    loader.close()
    torch.manual_seed(setup.config.seed)
    module = task.model(setup.family, setup.model_config)
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
