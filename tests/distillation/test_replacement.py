"""Progressive module replacing."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch.nn import functional as F

from tests.distillation.making import (
    assert_resumes_exactly,
    distill,
    make_setup,
    task_settings,
    tune_teacher,
)
from tests.finetuning.making import labelled
from tests.training.runs import finish_in_two_processes, records
from zoo.distillation.replacement import ModuleReplacing
from zoo.errors import UsageError
from zoo.training.build import prepare_run
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext

TASK = "text-classification"
RECIPE = {"recipe": "theseus", "replacement": {"rate": 0.5, "increment": 0.05}}


@pytest.fixture
def tree(tmp_path: Path) -> dict[str, Any]:
    file = labelled(tmp_path / "t.jsonl")
    teacher = tune_teacher(tmp_path / "teacher", TASK, file, config={"num_layers": 4})
    values: dict[str, Any] = task_settings([teacher], "bert", TASK, file, distillation=RECIPE)
    return deep_merge(values, {"max_steps": 8, "eval_steps": 4, "save_total_limit": 9})


def test_the_probability_rises_to_one(tree: dict[str, Any]) -> None:
    """replacement_scheduler: min(k * t + b, 1) after t steps."""
    objective = make_setup(tree).objective
    assert isinstance(objective, ModuleReplacing)
    assert [objective.probability(t) for t in (0, 4, 10, 99)] == pytest.approx([0.5, 0.7, 1, 1])
    draws = [objective.replaced(step, 2) for step in range(40)]
    assert draws == [objective.replaced(step, 2) for step in range(40)]
    assert [row for row in draws[10:] if False in row] == []
    early = [drawn for row in draws[:10] for drawn in row]
    assert 0 < sum(early) < len(early)


def test_the_loss_is_that_of_the_mixed_layers(tree: dict[str, Any], tmp_path: Path) -> None:
    """Layer k of the student, or layers 2 k and 2 k + 1 of the teacher, without dropout there."""
    tree["config"] = {"dropout": 0.0, "attention_dropout": 0.0}
    setup = make_setup(tree)
    prepared = prepare_run(setup, tmp_path / "run", DistContext.initialize("cpu"))
    batch = prepared.train_dataloader.batches(0)[0].tensors
    prepared.train_dataloader.close()
    module: Any = prepared.loss_module.model
    teacher: Any = setup.objective.teachers[0].model
    seen = set()
    with torch.no_grad():
        for parameter in module.student.layers.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    for step in range(8):
        setup.objective.begin_step(module.train(), step, 8)
        sums = setup.objective.compute_loss(module, batch).sums
        drawn = setup.objective.replaced(step, 2)  # type: ignore[attr-defined]
        seen.add(tuple(drawn))
        hidden = module.student.embeddings(batch["input_ids"], None, None)
        mask = (1.0 - batch["attention_mask"][:, None, None]) * -1e9
        for k in range(2):
            group = [module.student.layers[k]] if drawn[k] else teacher.layers[2 * k : 2 * k + 2]
            for layer in group:
                hidden = layer(hidden, mask)
        logits = module.student.head(module.student.pooler(hidden))
        expected = F.cross_entropy(logits, batch["labels"], reduction="sum")
        torch.testing.assert_close(sums[TASK], expected)
        alone = setup.objective.compute_loss(module.eval(), batch).sums[TASK]
        same = float(alone.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
        assert same == all(drawn)
    assert len(seen) > 2
    assert len(module.student.layers) == 2


@pytest.mark.long
@pytest.mark.parametrize(
    "frozen", [pytest.param([], marks=pytest.mark.long), ["layers.0"]], ids=str
)
def test_layers_alone_move_and_a_resumed_run_is_exact(
    tree: dict[str, Any], frozen: list[str], tmp_path: Path
) -> None:
    run = assert_resumes_exactly(
        tmp_path, deep_merge(tree, {"distillation": {"freeze": frozen}}), 4
    )
    teacher = tree["distillation"]["teachers"][0]
    before, after = (load_file(Path(p) / "model.safetensors") for p in (teacher, run / "model"))
    trained = [name for name in after if name.startswith("layers.")]
    trained = [name for name in trained if not name.startswith((*frozen, "-"))]
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name]) == (name not in trained), name
    assert len(trained) > 10


@pytest.mark.long  # the trainer's part is that of other recipes
def test_two_processes_equal_one(tree: dict[str, Any], tmp_path: Path) -> None:
    """Both draw the same layers, and layers without a part in a step have gradients of zero."""
    tree = deep_merge(tree, {"max_steps": 4, "config": {"dropout": 0.0, "attention_dropout": 0.0}})
    single, parallel, file = tmp_path / "one", tmp_path / "two", tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(tree))
    distill(single, tree)
    options = ("--no-score", "-o", str(parallel))
    finish_in_two_processes("distill", str(file), *options)
    for record, other in zip(records(parallel), records(single), strict=True):
        assert record["losses"] == pytest.approx(other["losses"], abs=1e-5)


@pytest.mark.by_default("changes1")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"student": {"num_layers": 3}}, "4 layers cannot be split into 3 groups"),
        ({"student": {"name": "distilbert"}}, "of a teacher of the same family"),
        ({"distillation": {"teacher_dtype": "bfloat16"}}, "layers in bfloat16"),
        ({"student": {"hidden_size": 16}}, "has its embeddings and head"),
        ({"distillation": {"init_layers": None}}, "has its embeddings and head"),
    ],
)
def test_what_does_not_fit(
    tree: dict[str, Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        distill(tmp_path / "run", deep_merge(tree, changes))
