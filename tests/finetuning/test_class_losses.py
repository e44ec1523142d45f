"""Losses of the first steps equal those of a loop over transformers' model on the same batches."""

import math
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn

from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    assert_two_processes_equal_one,
    finetune,
    labelled,
    losses_of_transformers,
    reference_losses,
    settings,
    setup_of,
    texts,
    training_losses,
    write_table,
)
from zoo.errors import UsageError
from zoo.finetuning.class_losses import fitted_weights
from zoo.finetuning.config import finetune_config
from zoo.objectives.base import Batch

TOKENS = "token-classification"
TASKS = {"Sequence": "text-classification", "Token": TOKENS}


@pytest.mark.by_default("pairs")
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


@pytest.mark.long
def test_regression(pretrained: Pretrained, tmp_path: Path) -> None:
    model, source = pretrained(
        "BertForSequenceClassification", num_labels=1, problem_type="regression"
    )
    rows = [{"text": t, "label": len(t) / 10} for t in texts(40)]
    tree = settings(model, write_table(tmp_path / "t.tsv", rows), task="regression")
    run = finetune(tmp_path / "run", tree)
    expected = losses_of_transformers(run, source)
    assert training_losses(run) == pytest.approx(expected, abs=1e-5)


@pytest.mark.long
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
    config = finetune_config(values, {"class_weights": {0: 1, 1: 3}})
    assert config.data.labels == ("1", "0")
    assert config.class_weights == {"0": 1.0, "1": 3.0}


WEIGHTS = {"no": 0.03, "yes": 0.005}  # whose sum over a micro-batch is below 1


@pytest.mark.long
@pytest.mark.parametrize("architecture", [f"BertFor{kind}Classification" for kind in TASKS])
def test_class_weights_are_those_of_torch(
    pretrained: Pretrained, tmp_path: Path, architecture: str
) -> None:
    """Several steps, in which gradients and thus weights are those of the weighted mean."""
    names = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    model, source = pretrained(architecture, **names)
    task = TASKS[architecture[7:-14]]
    table = labelled(tmp_path / "t.tsv") if task != TOKENS else words(tmp_path / "t.conll")
    tree = settings(model, table, task=task, class_weights=WEIGHTS)
    run = finetune(tmp_path / "run", tree)
    reference = getattr(transformers, architecture).from_pretrained(source)
    weight = torch.tensor([*WEIGHTS.values()])
    torch_loss = nn.CrossEntropyLoss(weight, ignore_index=-100)

    def batch_loss(batch: Batch) -> tuple[Tensor, float]:
        inputs = dict(batch.tensors)
        labels = inputs.pop("labels").flatten()
        total = float(weight[labels[labels >= 0]].sum())
        return torch_loss(reference(**inputs).logits.view(-1, 2), labels) * total, total

    expected = reference_losses(run, reference, batch_loss)
    assert training_losses(run) == pytest.approx(expected, abs=1e-5)
    assert expected[-1] != pytest.approx(expected[0], abs=1e-2), "the weights changed"
    whole = finetune(tmp_path / "whole", {**tree, "micro_batch_size": 8})
    assert training_losses(whole) == pytest.approx(training_losses(run), abs=1e-6)


def words(path: Path) -> Path:
    """Write words with the label ``yes`` for vowels, else ``no``."""
    lines = [[f"{w}\t{'yes' if w in 'aei' else 'no'}" for w in t.split()] for t in texts(40)]
    path.write_text("\n\n".join("\n".join(line) for line in lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"no": math.nan, "yes": 1.0}, "finite weights"),
        ({"no": 0.0, "yes": 0.0}, "one of them above 0"),
        ({"no": -1.0, "yes": 1.0}, "0 or more"),
    ],
)
def test_weights_that_have_no_mean(
    pretrained: Pretrained, tmp_path: Path, weights: dict[str, float], message: str
) -> None:
    tree = settings(pretrained()[0], labelled(tmp_path / "t.tsv"), class_weights=weights)
    with pytest.raises(UsageError, match=message):
        finetune(tmp_path / "run", tree)


@pytest.mark.long
def test_class_weights_in_two_processes(pretrained: Pretrained, tmp_path: Path) -> None:
    tree = settings(pretrained()[0], labelled(tmp_path / "t.tsv"), class_weights=WEIGHTS)
    assert_two_processes_equal_one(tmp_path / "runs", tree)


def test_balanced_weights_have_a_mean_of_one(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    rows = [{"text": t, "label": "a" if k % 4 else "b"} for k, t in enumerate(texts(40))]
    tree = settings(model, write_table(tmp_path / "t.tsv", rows), class_weights="balanced")
    setup = setup_of(finetune(tmp_path / "run", {**tree, "max_steps": 1}))
    labels = setup.train_rows.values["labels"]
    weights = fitted_weights(setup.objective.context)
    assert weights is not None
    by_label = dict(zip("ab", weights.values, strict=True))
    share = float((labels == 0).mean())
    assert by_label["a"] == pytest.approx(1 / (2 * share))
    assert by_label["b"] == pytest.approx(1 / (2 * (1 - share)))
