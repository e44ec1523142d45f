"""Compiled runs: losses equal those of eager mode, and a compiled run resumes."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.cases import dry
from tests.training.runs import assert_resumes_from, records, run_training, small
from zoo.training.distributed.context import DistContext
from zoo.training.loss_module import LossModule
from zoo.training.setup import pretrain_setup, train_dataloader

CPU = torch.device("cpu")
COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
pytestmark = [
    pytest.mark.usefixtures("shared_home"),
    pytest.mark.skipif(COMPILER is None, reason="torch.compile on a CPU takes a C++ compiler"),
]
SETTINGS: dict[str, Any] = {
    "config": {"num_layers": 1, "dropout": 0.0, "attention_dropout": 0.0},
    "max_steps": 4,
    "save_steps": 2,
    "micro_batch_tokens": None,
}


COMPILED = [
    "bert",
    # Their steps have its blocks, and other positions, another mask or a second stack.
    *(
        pytest.param(family, marks=pytest.mark.long)
        for family in ("deberta", "gpt", "electra", "modernbert", "t5")
    ),
]


@pytest.mark.parametrize("family", COMPILED)
def test_a_step_is_one_graph(family: str) -> None:
    """A break splits the work of a step, and keeps kernels from being fused across it."""
    from torch import _dynamo

    setup = pretrain_setup(dry(small(family, compile=True)))
    model = setup.objective.model(setup.family, setup.model_config)
    with contextlib.closing(train_dataloader(setup, DistContext(0, 1, CPU))) as loader:
        (batch, *_) = loader.batches(0)
    _dynamo.reset()
    explained = _dynamo.explain(LossModule(setup.objective, model).train())(batch.tensors)
    assert [reason.reason for reason in explained.break_reasons] == []
    assert explained.graph_count == 1


@pytest.mark.long
def test_compiled_losses_are_equal_and_a_compiled_run_resumes(tmp_path: Path) -> None:
    """In one process, so that compiled code is reused."""
    from torch._dynamo.utils import counters  # it imports a compiler, which no other test needs

    plain = run_training(tmp_path / "plain", "bert", objective="masked-lm", **SETTINGS)
    counters.clear()
    run = run_training(tmp_path / "run", "bert", objective="masked-lm", compile=True, **SETTINGS)
    assert counters["stats"]["unique_graphs"] > 0 and counters["frames"]["ok"] > 0
    for split in ("train", "validation"):
        expected = [record["loss"] for record in records(plain, split)]
        losses = [record["loss"] for record in records(run, split)]
        assert losses == pytest.approx(expected, abs=1e-5)
    assert_resumes_from(run, tmp_path, 2)
