"""Distillation on labelled data: tasks, inputs of other families, several teachers, recipes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.distillation.making import (
    NO_DROPOUT,
    TASKS,
    assert_resumes_exactly,
    distill,
    family_of,
    make_setup,
    narrow,
    numbers,
    pretrained,
    task_settings,
    tune_teacher,
    views,
)
from tests.finetuning.making import finetune, labelled, texts, write_table
from tests.finetuning.making import settings as finetune_settings
from tests.tasks.question_answering.making import questions_about_letters
from tests.training.runs import records
from zoo.adapted_models.checkpoint import AdaptedCheckpoint
from zoo.conversion.cache import resolve_checkpoint
from zoo.data.readers.problems import InvalidRows
from zoo.distillation.scoring.score import score_run
from zoo.errors import UsageError
from zoo.inference.load_model import load_adapted_model
from zoo.training.config.overrides import deep_merge


def pairs(path: Path) -> Path:
    rows = [
        {"text": a, "pair": b, "label": "yes" if a[0] < b[0] else "no"}
        for a, b in zip(texts(40), texts(40, seed=1), strict=True)
    ]
    return write_table(path, rows)


@pytest.mark.by_default("text-classification")
@pytest.mark.parametrize("task", TASKS)
def test_tasks(task: str, tmp_path: Path) -> None:
    """A student that equals its teacher has no error; one of fewer layers has, and learns."""
    name, write, term = TASKS[task]
    file = write(tmp_path / name)
    teacher = tune_teacher(tmp_path / "teacher", task, file)
    recipe: dict[str, Any] = {"recipe": "logits"}
    if term == "error":  # divergences of the few choices are close to rounding
        recipe["terms"] = {term: {"kind": "logits-mse"}}
    tree = task_settings([teacher], teacher, task, file, distillation=recipe, **NO_DROPOUT)
    same = distill(tmp_path / "same", deep_merge(tree, {"optimizer": {"learning_rate": 1e-30}}))
    (record,) = records(same, "validation")
    assert record["losses"][term] == pytest.approx(0, abs=1e-6)
    student = "distilbert" if family_of(task) == "bert" and task != "multiple-choice" else None
    tree["student"] = narrow(student or family_of(task), num_layers=1)
    tree["config"] = {}
    (record,) = records(distill(tmp_path / "student", tree), "validation")
    assert record["losses"][term] > 1e-6
    assert set(record["losses"]) >= {task, term}


@pytest.mark.by_default("text-classification")
@pytest.mark.parametrize("task", ["text-classification", "token-classification"])
def test_class_weights_are_of_the_task_and_not_of_its_teacher(task: str, tmp_path: Path) -> None:
    """The divergence is a mean over rows; student and teacher are scored by the weighted loss."""
    name, write, term = TASKS[task]
    file = write(tmp_path / name)
    teacher = tune_teacher(tmp_path / "teacher", task, file)
    changes = {"class_weights": "balanced", "distillation": {"recipe": "logits"}}
    objective, outputs, batch = views(
        task_settings([teacher], teacher, task, file, **changes, **NO_DROPOUT), tmp_path / "run"
    )
    labels = batch.tensors["labels"]
    assert batch.counts[term] == len(labels[labels >= 0])
    weight = torch.tensor(objective.base.context.fitted.values)
    assert batch.counts[task] == pytest.approx(float(weight[labels[labels >= 0]].sum()))
    view = outputs.teachers[0]
    mine = objective.base.loss(outputs.student.outputs, batch.tensors).sums[task]
    other = objective.teachers[0].objective.loss(view.outputs, batch.tensors).sums[task]
    torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)  # equal weights


def test_a_divergence_of_a_regression_is_refused(tmp_path: Path) -> None:
    file = numbers(tmp_path / "r.jsonl")
    teacher = tune_teacher(tmp_path / "teacher", "regression", file)
    terms = {"mine": {"kind": "kl"}}
    tree = task_settings([teacher], "distilbert", "regression", file, distillation={"terms": terms})
    with pytest.raises(UsageError, match=r"terms.mine: kl compares probabilities") as caught:
        distill(tmp_path / "run", tree)
    assert "terms.mine.kind=logits-mse" in str(caught.value.hint)


def test_patient_distillation_has_the_loss_of_the_released_code(tmp_path: Path) -> None:
    """KD_loss.py: KLDivLoss(mean) * T * T, and the mean squared error of normalized states."""
    file = labelled(tmp_path / "t.jsonl")
    teacher = tune_teacher(
        tmp_path / "teacher", "text-classification", file, config={"num_layers": 4}
    )
    recipe = {"distillation": {"recipe": "patient"}}
    tree = task_settings([teacher], "bert", "text-classification", file, **recipe)
    objective, outputs, batch = views(tree, tmp_path / "run")
    sums = objective.loss(outputs, batch.tensors).sums
    loss = sum(
        weight * sums[name] / batch.counts[name] for name, weight in objective.loss_weights.items()
    )
    mine, other = (
        v.outputs.logits["text-classification"] for v in (outputs.student, *outputs.teachers)
    )
    divergence = torch.nn.KLDivLoss(reduction="mean")(
        F.log_softmax(mine / 10, dim=1), F.softmax(other / 10, dim=1)
    )
    states = [
        torch.stack([view.captured.hidden[k][:, 0] for k in layers], dim=1)
        for view, layers in ((outputs.student, [1]), (outputs.teachers[0], [2]))
    ]
    lengths = [F.normalize(state, p=2, dim=2) for state in states]
    patience = F.mse_loss(lengths[0], lengths[1])
    label_loss = F.cross_entropy(mine, batch.tensors["labels"])
    expected = 0.3 * label_loss + 0.7 * divergence * 100 + 500 * patience
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)


@pytest.mark.long
def test_students_of_other_inputs_read_their_own_rows(tmp_path: Path) -> None:
    """The teacher of pairs has segment embeddings, and the student has none."""
    file = pairs(tmp_path / "p.jsonl")
    data: dict[str, Any] = {"data": {"pair": "pair"}}
    teacher = tune_teacher(tmp_path / "teacher", "text-classification", file, **data)
    tree = task_settings([teacher], "distilbert", "text-classification", file, **data)
    _, outputs, batch = views(tree, tmp_path / "run")
    assert batch.tensors["teacher:token_type_ids"].any()
    assert "token_type_ids" not in batch.tensors
    (view,) = outputs.teachers
    inputs = {k.removeprefix("teacher:"): v for k, v in batch.tensors.items() if ":" in k}
    inputs.pop("labels")
    torch.testing.assert_close(
        view.outputs.logits["text-classification"], view.model(**inputs)["logits"]
    )
    assert_resumes_exactly(tmp_path, tree | {"save_steps": 1}, 1)


def test_rows_that_cannot_be_used_are_skipped_for_teacher_and_student(tmp_path: Path) -> None:
    """Also where both read rows of their own."""
    file = pairs(tmp_path / "p.jsonl")
    data: dict[str, Any] = {"data": {"pair": "pair"}}
    teacher = tune_teacher(tmp_path / "teacher", "text-classification", file, **data)
    file.write_text('{"text": "a"\n' + file.read_text() + '{"text": "a", "pair": "b"}\n')
    tree = task_settings([teacher], "distilbert", "text-classification", file, **data)
    with pytest.raises(InvalidRows, match=r"2 rows cannot be used[^\0]*p\.jsonl:1 is not JSON"):
        make_setup(tree)
    tree = deep_merge(tree, {"data": {"skip_invalid": True}})
    run = distill(tmp_path / "run", tree)
    assert records(run, "data") == [
        {"step": 0, "split": "data", "skipped": {"train": 2, "eval": 0}}
    ]
    assert len(records(run)) == 2


@pytest.mark.long
def test_teachers_with_another_tokenizer(tmp_path: Path) -> None:
    file = pairs(tmp_path / "p.jsonl")
    data = {"data": {"pair": "pair"}}
    teacher = tune_teacher(tmp_path / "teacher", "text-classification", file, "deberta", **data)
    other = tune_teacher(
        tmp_path / "other", "text-classification", file, "bert", vocab_size=40, **data
    )
    tree = task_settings([teacher], other, "text-classification", file, **data)
    recipe = {"distillation": {"recipe": "logits"}}
    (record,) = records(distill(tmp_path / "run", deep_merge(tree, recipe)), "validation")
    assert record["losses"]["kl"] > 0
    states = {"distillation": {"terms": {"x": {"kind": "hidden-mse"}}}}
    with pytest.raises(UsageError, match="read different tokens"):
        distill(tmp_path / "states", deep_merge(tree, recipe, states))


@pytest.mark.long
def test_probabilities_of_several_teachers_are_averaged(tmp_path: Path) -> None:
    file, task = labelled(tmp_path / "t.jsonl"), "text-classification"
    teachers = [tune_teacher(tmp_path / str(k), task, file, seed=k) for k in range(2)]
    tree = task_settings(teachers, "distilbert", task, file, distillation={"recipe": "logits"})
    objective, outputs, batch = views(tree, tmp_path / "run")
    total = objective.loss(outputs, batch.tensors).sums["kl"]
    mine, *others = (v.outputs.logits[task] / 2 for v in (outputs.student, *outputs.teachers))
    assert not torch.equal(*others)
    mean = sum(other.softmax(-1) for other in others) / 2
    expected = 4 * F.kl_div(mine.log_softmax(-1), mean, reduction="sum")
    torch.testing.assert_close(total, expected)
    states = {"distillation": {"recipe": "patient"}}
    with pytest.raises(UsageError, match="there are 2 teachers"):
        distill(tmp_path / "states", deep_merge(tree, states))


@pytest.mark.long
def test_means_over_classes_need_classes(tmp_path: Path) -> None:
    file = questions_about_letters(tmp_path / "q.jsonl")
    teacher = tune_teacher(tmp_path / "teacher", "question-answering", file)
    recipe = {"distillation": {"recipe": "patient"}}
    tree = task_settings([teacher], "bert", "question-answering", file, **recipe)
    tree["student"]["num_layers"] = 2
    with pytest.raises(UsageError, match="divides by the classes") as caught:
        distill(tmp_path / "run", tree)
    assert caught.value.hint == "--set distillation.terms.kl.reduction=rows"
    rows = {"distillation": {"terms": {"kl": {"reduction": "rows"}}}}
    (record,) = records(distill(tmp_path / "run", deep_merge(tree, rows)), "validation")
    assert set(record["losses"]) == {"question-answering", "kl", "first_token"}


def test_recipes_for_labelled_data_need_a_task(tmp_path: Path) -> None:
    file = labelled(tmp_path / "t.jsonl")
    teacher = tune_teacher(tmp_path / "teacher", "text-classification", file)
    tree = {
        "distillation": {"teachers": [str(teacher)], "recipe": "patient"},
        "student": narrow("bert"),
    }
    with pytest.raises(UsageError, match="the recipe patient is for labelled data"):
        distill(tmp_path / "run", tree)


@pytest.mark.long
@pytest.mark.parametrize("method", [pytest.param("lora", marks=pytest.mark.long), "pfeiffer"])
def test_a_teacher_may_be_an_adapter(method: str, tmp_path: Path) -> None:
    """Its tokenizer and the rest of its weights are those of its base."""
    file, base, task = labelled(tmp_path / "t.jsonl"), pretrained("bert"), "text-classification"
    few = {"max_steps": 2, "eval_steps": 2, "optimizer": {"learning_rate": 0.01}}
    tree = finetune_settings(base, file, adapter={"method": method}, **few)
    teacher = finetune(tmp_path / "teacher", tree) / "model"
    student = {"num_layers": 1}
    tree = task_settings([teacher], "bert", task, file, student=student)
    tree["distillation"] |= {"recipe": "logits", "init_layers": None}
    run = distill(tmp_path / "run", tree)
    (score,) = score_run(run).teachers
    files = (teacher / "adapter.safetensors", base / "model.safetensors")
    assert score.bytes == sum(path.stat().st_size for path in files)
    _, outputs, batch = views(tree, tmp_path / "again")
    checkpoint = resolve_checkpoint(str(teacher))
    assert isinstance(checkpoint, AdaptedCheckpoint)
    inputs = {name: batch.tensors[name] for name in ("input_ids", "attention_mask")}
    expected = load_adapted_model(checkpoint, merge=False)(**inputs)["logits"]
    found = outputs.teachers[0].outputs.logits[task]
    torch.testing.assert_close(found, expected)
