"""Batches of evaluations during fine-tuning, which are made one by one."""

import gc
from pathlib import Path

import pytest
import torch

from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import HERE, finetune, labelled, settings, setup_of
from zoo.objectives.base import Batch


@pytest.mark.long
def test_batches_of_an_evaluation_are_not_held(pretrained: Pretrained, tmp_path: Path) -> None:
    files = {"train": [str(labelled(tmp_path / "t.tsv"))], "eval": []}
    files["eval"] = [str(labelled(tmp_path / "e.tsv", 50, seed=1))]
    run = finetune(tmp_path / "run", settings(pretrained()[0], tmp_path / "t.tsv", data=files))
    setup = setup_of(run)
    batches = setup.eval_batches(HERE)
    gc.collect()
    before = sum(isinstance(item, Batch) for item in gc.get_objects())
    rows, tokens, alive = 0, list[int](), 0
    for batch in batches:
        rows += batch.rows
        tokens.append(batch.tensors["input_ids"].shape[1])
        gc.collect()
        alive = max(alive, sum(isinstance(item, Batch) for item in gc.get_objects()) - before)
    assert (len(batches), rows, alive) == (13, 50, 1)
    assert tokens == sorted(tokens)
    last = batches[-1].tensors
    for name, values in batches[12:][0].tensors.items():
        assert torch.equal(values, last[name])
