"""Rows of a step: drawn at random, sorted by length into micro-batches."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import HERE, labelled, settings
from zoo.finetuning.order import EpochShuffle
from zoo.finetuning.runs import FineTuneRun
from zoo.finetuning.setup import FineTuneSetup, finetune_setup
from zoo.training.distributed.context import DistContext


@pytest.fixture
def model(pretrained: Pretrained) -> Path:
    return pretrained()[0]


def setup_from(tree: dict[str, Any]) -> FineTuneSetup:
    config: Any = FineTuneRun.build_config(tree, {})
    return finetune_setup(config)


def lengths_of(batches: list[Any]) -> list[list[int]]:
    """Return the number of tokens of each row; rows of one length have no mask."""
    ids = [batch.tensors["input_ids"] for batch in batches]
    masks = [batch.tensors.get("attention_mask") for batch in batches]
    return [
        (torch.ones_like(rows) if mask is None else mask).sum(1).tolist()
        for rows, mask in zip(ids, masks, strict=True)
    ]


@pytest.mark.parametrize("world_size", [1, 2])
def test_rows_of_a_step_are_drawn_regardless_of_their_lengths(
    model: Path, tmp_path: Path, world_size: int
) -> None:
    setup = setup_from(settings(model, labelled(tmp_path / "t.tsv", 60), batch_size=16))
    every, shuffle = setup.train_rows.lengths, EpochShuffle(len(setup.train_rows), 0)
    loaders = [
        setup.train_dataloader(DistContext(rank, world_size, torch.device("cpu")))
        for rank in range(world_size)
    ]
    for step in range(8):
        parts = [lengths_of(loader.make_batches(step)) for loader in loaders]
        for rank, part in enumerate(parts):
            share = 16 // world_size
            drawn = [shuffle[16 * step + share * rank + place] for place in range(share)]
            longest_first = sorted(every[drawn].tolist(), reverse=True)
            assert part == [longest_first[k : k + 4] for k in range(0, share, 4)]


@pytest.mark.parametrize(
    ("packs_rows", "changes", "expected"),
    [
        (True, {}, [20]),
        (False, {}, [8, 8, 4]),
        (True, {"micro_batch_size": 16}, [16, 4]),
        (False, {"micro_batch_size": 16}, [16, 4]),
        (False, {"batch_size": 3}, [3]),
    ],
)
def test_micro_batches_on_a_cpu(
    model: Path, tmp_path: Path, packs_rows: bool, changes: dict[str, int], expected: list[int]
) -> None:
    """Models that take packed rows, as BERT does, compute a step at once."""
    tree = settings(model, labelled(tmp_path / "t.tsv", 60), batch_size=20, micro_batch_size=None)
    setup = setup_from({**tree, **changes})
    assert setup.packs_rows
    setup = replace(setup, packs_rows=packs_rows)
    loader = setup.train_dataloader(HERE)
    assert [len(rows) for rows in lengths_of(loader.make_batches(0))] == expected
    middle = lengths_of(loader.make_batches(0))[len(expected) // 2]
    assert lengths_of([loader.middle_micro_batch(0)]) == [middle]
