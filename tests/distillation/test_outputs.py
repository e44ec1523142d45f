"""The outputs of models as losses compare them: labels belong to the rows of logits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.distillation.making import TASKS, pretrained, task_settings, tune_teacher, views
from tests.distillation.making import settings as text_settings
from zoo.distillation.logits import dense, num_classes


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, reduction="sum")


def squared_error(logits: Tensor, labels: Tensor) -> Tensor:
    return ((logits.squeeze(-1) - labels) ** 2).sum()


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")


FORMULAS = {
    "text-classification": cross_entropy,
    "token-classification": cross_entropy,
    "multiple-choice": cross_entropy,
    "regression": squared_error,
    "multi-label": binary_cross_entropy,
}


@pytest.mark.by_default("text-classification")
@pytest.mark.parametrize("task", FORMULAS)
def test_logits_and_labels_of_a_task_have_its_loss(task: str, tmp_path: Path) -> None:
    name, write, _ = TASKS[task]
    file = write(tmp_path / name)
    teacher = tune_teacher(tmp_path / "teacher", task, file)
    terms = {"error": {"kind": "logits-mse"}}
    tree = task_settings([teacher], teacher, task, file, distillation={"terms": terms})
    objective, outputs, batch = views(tree, tmp_path / "run")
    student = outputs.student
    logits = dense(student.logits(task, everywhere=False), num_classes(outputs.logits[task]))
    expected = objective.base.loss(student.outputs, batch.tensors).sums[task]
    loss = FORMULAS[task](logits, student.labels(task))
    torch.testing.assert_close(loss, expected.to(loss.dtype), rtol=1e-5, atol=1e-6)


def test_logits_and_labels_of_masked_tokens_have_their_loss(tmp_path: Path) -> None:
    tree: Any = text_settings(pretrained("bert"), "distilbert")
    objective, outputs, batch = views(tree, tmp_path / "run")
    student = outputs.student
    logits = student.logits("masked-lm", everywhere=False)
    rows = dense(logits, num_classes(logits))
    expected = objective.base.loss(student.outputs, batch.tensors).sums["masked-lm"]
    loss = cross_entropy(rows, student.labels("masked-lm"))
    torch.testing.assert_close(loss, expected.to(loss.dtype), rtol=1e-5, atol=1e-6)
