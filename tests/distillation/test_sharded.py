"""Runs whose student is sharded over two processes, compared with runs of one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.distillation.making import (
    distill,
    pretrained,
    settings,
    task_settings,
    tune_teacher,
)
from tests.finetuning.making import labelled
from tests.training.runs import cut, finish_in_two_processes, records
from zoo.training.config.overrides import deep_merge
from zoo.training.state.progress import list_checkpoints

TASK = "text-classification"
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
FOUR_STEPS = {"max_steps": 4, "eval_steps": 2, "save_steps": 2}  # two micro-batches a process


def with_a_projection(path: Path) -> dict[str, Any]:
    """A student of another width, whose states are mapped, and of which all is compared."""
    terms = {
        "hidden": {"kind": "hidden-mse", "embeddings": True, "layers": "uniform"},
        "relations": {"kind": "relations", "relation_heads": 4},
    }
    student = {"num_layers": 1, "hidden_size": 64, "intermediate_size": 128, **NO_DROPOUT}
    tree = settings(pretrained("bert"), "distilbert", student=student, micro_batch_tokens=64)
    return deep_merge(tree, {"distillation": {"terms": terms}})


def without_the_head(path: Path) -> dict[str, Any]:
    """A recipe whose terms leave parameters without gradients, those of whole layers included."""
    terms = {"kl": {"weight": 0.0}, "first": {"kind": "hidden-mse", "layers": [[0, 0]]}}
    recipe = {"recipe": "logits", "objective_weight": 0.0, "terms": terms}
    student = {"num_layers": 2, **NO_DROPOUT}
    tree = settings(pretrained("bert"), "bert", student=student, micro_batch_tokens=64)
    return deep_merge(tree, {"distillation": recipe})


def with_replaced_layers(path: Path) -> dict[str, Any]:
    """Whole layers of the teacher run between sharded ones: two, two, one and none of the steps."""
    file = labelled(path / "t.jsonl")
    teacher = tune_teacher(path / "teacher", TASK, file, config={"num_layers": 4})
    recipe = {"recipe": "theseus", "replacement": {"rate": 0.4, "increment": 0.05}}
    changes = {"distillation": recipe, "config": NO_DROPOUT, "micro_batch_size": 2}
    tree: dict[str, Any] = task_settings([teacher], "bert", TASK, file, **changes)
    return tree


@pytest.mark.long
@pytest.mark.parametrize("make", [with_a_projection, without_the_head, with_replaced_layers])
def test_two_processes_equal_one(make: Callable[[Path], dict[str, Any]], tmp_path: Path) -> None:
    tree = deep_merge(make(tmp_path), FOUR_STEPS)
    alone, sharded, file = tmp_path / "one", tmp_path / "two", tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(tree))
    distill(alone, tree)
    finish_in_two_processes("distill", str(file), "--fsdp", "--no-score", "-o", str(sharded))
    before = records(sharded)
    cut(sharded, 2)
    finish_in_two_processes("distill", "--resume", str(sharded), "--no-score")
    assert records(sharded) == before
    assert (max(list_checkpoints(sharded).values()) / "shards").is_dir()
    for split in ("train", "validation"):
        for record, other in zip(records(sharded, split), records(alone, split), strict=True):
            assert record["losses"] == pytest.approx(other["losses"], abs=1e-5)
    weights, expected = (load_file(run / "model/model.safetensors") for run in (sharded, alone))
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=0, atol=1e-4, msg=name)
