"""Distillation from teachers with the student's labels in another order."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.distillation.making import (
    NO_DROPOUT,
    make_setup,
    task_settings,
    tune_teacher,
    views,
)
from tests.finetuning.making import texts, write_table
from zoo.checkpoint import load_checkpoint
from zoo.distillation.setup import DistillSetup
from zoo.errors import UsageError
from zoo.finetuning.labels import label_order
from zoo.inference.load_model import load_model
from zoo.training.build import prepare_run
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext

TASK = "text-classification"
ORDERS = ["c", "a", "b"], ["b", "c", "a"]  # of the teachers; that of the student is sorted
SORTED = ["a", "b", "c"]


def three_labels(path: Path, names: str = "abc") -> Path:
    rows = [{"text": text, "label": names[k % 3]} for k, text in enumerate(texts(42))]
    return write_table(path, rows)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return three_labels(tmp_path / "t.jsonl")


def teacher_with(folder: Path, table: Path, labels: list[str], **changes: Any) -> Path:
    return tune_teacher(folder, TASK, table, **deep_merge({"data": {"labels": labels}}, changes))


def logits_by_name(model: Path, view: Any, batch: Any) -> Tensor:
    """Return the logits of a teacher in the order of the student, computed from its checkpoint."""
    checkpoint = load_checkpoint(model)
    prefix = "teacher:"
    tensors = {k.removeprefix(prefix): v for k, v in batch.tensors.items() if k.startswith(prefix)}
    inputs = {k: v for k, v in (tensors or dict(batch.tensors)).items() if k != "labels"}
    with torch.no_grad():
        logits = load_model(checkpoint)(**inputs)["logits"]
    columns = dict(zip(checkpoint.config.labels, logits.unbind(-1), strict=True))
    return torch.stack([columns[name] for name in SORTED], -1)


@pytest.mark.by_default("1")
@pytest.mark.parametrize(
    ("count", "changes"),
    [
        (1, {}),
        (2, {}),
        (2, {"cache_teacher": "cache"}),
        pytest.param(2, {"teacher_backend": "onnx"}, marks=pytest.mark.long),
        pytest.param(
            1, {"teacher_backend": "onnx", "cache_teacher": "cache"}, marks=pytest.mark.long
        ),
    ],
)
def test_logits_are_compared_by_name(
    count: int,
    changes: dict[str, Any],
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    models = [
        teacher_with(tmp_path / str(k), table, order, seed=k)
        for k, order in enumerate(ORDERS[:count])
    ]
    recipe = {"recipe": "logits", **changes}
    tree = task_settings(models, "distilbert", TASK, table, distillation=recipe)
    objective, outputs, batch = views(tree, tmp_path / "run")
    for _ in range(2):  # the second pass reads the cache
        total = objective.loss(outputs, batch.tensors).sums["kl"]
        others = [
            logits_by_name(model, view, batch)
            for model, view in zip(models, outputs.teachers, strict=True)
        ]
        mean = torch.stack([(other / 2).softmax(-1) for other in others]).mean(0)
        mine = outputs.student.outputs.logits[TASK] / 2
        expected = 4 * F.kl_div(mine.log_softmax(-1), mean, reduction="sum")
        torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-5)
        outputs = objective.forward(outputs.module, batch.tensors)


@pytest.mark.long
def test_the_largest_logits_of_a_cache_are_those_of_the_names(table: Path, tmp_path: Path) -> None:
    model = teacher_with(tmp_path / "teacher", table, ORDERS[0])
    recipe = {"recipe": "logits", "cache_teacher": str(tmp_path / "cache"), "cache_top_k": 2}
    tree = task_settings([model], "distilbert", TASK, table, distillation=recipe)
    _, outputs, batch = views(tree, tmp_path / "run")
    (view,) = outputs.teachers
    top = view.logits(TASK, everywhere=False)
    values, classes = logits_by_name(model, view, batch).topk(2)
    assert top.classes.tolist() == classes.tolist()
    torch.testing.assert_close(top.values, values)


@pytest.mark.long
def test_a_cache_serves_students_of_any_order(table: Path, tmp_path: Path) -> None:
    """It holds the order of the teacher."""
    model = teacher_with(tmp_path / "teacher", table, ORDERS[0])
    recipe = {"recipe": "logits", "cache_teacher": str(tmp_path / "cache")}
    tree = task_settings([model], "distilbert", TASK, table, distillation=recipe)
    read = []
    for number, labels in enumerate((SORTED, ORDERS[1])):
        more = deep_merge(tree, {"data": {"labels": labels}})
        objective, outputs, _ = views(more, tmp_path / str(number))
        objective.teachers[0].cache.close()
        logits = outputs.teachers[0].logits(TASK, everywhere=False)
        read.append(dict(zip(labels, logits.unbind(-1), strict=True)))
    for name in SORTED:
        torch.testing.assert_close(read[0][name], read[1][name], rtol=0, atol=0)


@pytest.mark.long
@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_a_student_begins_with_the_rows_of_its_labels(
    family: str, table: Path, tmp_path: Path
) -> None:
    model = tune_teacher(tmp_path / "teacher", TASK, table, family, data={"labels": ORDERS[0]})
    recipe = {"recipe": "logits", "init_layers": "first"}
    tree = task_settings([model], family, TASK, table, distillation=recipe, **NO_DROPOUT)
    config: Any = load_checkpoint(model).config
    tree["student"]["num_layers"] = config.num_layers
    _, outputs, batch = views(tree, tmp_path / "run")
    mine = outputs.student.outputs.logits[TASK]
    torch.testing.assert_close(mine, logits_by_name(model, outputs.teachers[0], batch))


def test_a_teacher_is_scored_by_name(table: Path, tmp_path: Path) -> None:
    model = teacher_with(tmp_path / "teacher", table, ORDERS[0])
    recipe = {"recipe": "logits", "cache_teacher": str(tmp_path / "cache")}
    setup = make_setup(task_settings([model], "distilbert", TASK, table, distillation=recipe))
    batch = prepared_batch(setup, tmp_path / "run")
    (teacher,) = setup.objective.scored_teachers(setup.base)
    assert teacher is not None
    view = teacher.forward(batch.tensors, {})
    sums = view.objective.loss(view.outputs, view.batch).sums
    expected = F.cross_entropy(
        logits_by_name(model, view, batch), batch.tensors["labels"], reduction="sum"
    )
    torch.testing.assert_close(sums[TASK], expected)


def prepared_batch(setup: DistillSetup, folder: Path) -> Any:
    prepared = prepare_run(setup, folder, DistContext.initialize("cpu"))
    batch = prepared.train_dataloader.batches(0)[0]
    prepared.train_dataloader.close()
    return batch


def test_different_labels_are_refused(table: Path, tmp_path: Path) -> None:
    model = teacher_with(tmp_path / "teacher", table, SORTED)
    other = three_labels(tmp_path / "other.jsonl", "abx")
    recipe = {"recipe": "logits"}
    tree = task_settings([model], "distilbert", TASK, other, distillation=recipe)
    with pytest.raises(
        UsageError, match=r"has the labels a, b, c, and the student has a, b, x;"
    ) as e:
        make_setup(tree)
    assert "matched by name, in any order: rename them in the data" in str(e.value.hint)


def test_order_of_labels() -> None:
    assert label_order(["c", "a", "b"], ["a", "b", "c"]) == (1, 2, 0)
    assert label_order(["LABEL_0", "LABEL_1"], ["1", "0"]) == (1, 0)  # outputs without names
    assert label_order(["a", "b"], ["a", "c"]) is None
    assert label_order(["a", "b", "c"], ["a", "b"]) is None
