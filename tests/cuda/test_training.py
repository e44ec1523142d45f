"""Runs on a CUDA device: resumed to the bit, compiled, with batches copied ahead."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.cases import dry
from tests.training.runs import assert_same, cut, records, small, tree
from zoo.data.rng import generator
from zoo.nn.packed_attention import attached_offsets, document_offsets
from zoo.training.devices import DeviceTransfer
from zoo.training.distributed.context import DistContext
from zoo.training.loss_module import LossModule
from zoo.training.run import PretrainRun
from zoo.training.setup import pretrain_setup, train_dataloader
from zoo.training.trainer import Trainer

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("shared_home")]
RESUMED = [
    ("gpt", "bfloat16"),  # attention by offsets, with dropout
    ("electra", "bfloat16"),  # samples of a generator
    ("deberta", "float32"),  # masks, relative positions
    ("t5", "bfloat16"),
    ("elmo", "float32"),  # carried states
]


def run_on(device: torch.device, path: Path, family: str, **changes: Any) -> Path:
    PretrainRun(tree(family, **changes), DistContext(0, 1, device), path).start()
    return path


@pytest.mark.parametrize(("family", "precision"), RESUMED)
def test_a_resumed_run_is_the_same_to_the_bit(
    family: str, precision: str, tmp_path: Path, device: torch.device
) -> None:
    changes = {"max_steps": 6, "precision": precision, "deterministic": True}
    whole = run_on(device, tmp_path / "whole", family, **changes)
    broken = tmp_path / "broken"
    shutil.copytree(whole, broken)
    cut(broken, 3)
    PretrainRun({}, DistContext(0, 1, device)).resume(broken)
    assert_same(whole, broken)


@pytest.mark.parametrize("family", ["bert", "gpt", "electra", "t5"])
def test_a_compiled_run_has_the_same_losses(
    family: str, tmp_path: Path, device: torch.device
) -> None:
    changes = {
        "max_steps": 4,
        "precision": "float32",
        "config": dry(small(family)).config,
        "micro_batch_tokens": None,
    }
    torch._dynamo.reset()  # compiled code belongs to functions, which families share
    once = family != "electra"  # whose generator and discriminator share functions
    plain = run_on(device, tmp_path / "plain", family, **changes)
    with torch._dynamo.config.patch(error_on_recompile=once):
        compiled = run_on(device, tmp_path / "compiled", family, compile=True, **changes)
    for split in ("train", "validation"):
        expected = [record["loss"] for record in records(plain, split)]
        losses = [record["loss"] for record in records(compiled, split)]
        assert losses == pytest.approx(expected, rel=1e-4)


def test_losses_fall_as_on_a_cpu(tmp_path: Path, device: torch.device) -> None:
    """In bfloat16, over a few steps."""
    changes = {"max_steps": 8, "config": dry(small("bert")).config}
    expected = run_on(torch.device("cpu"), tmp_path / "cpu", "bert", **changes)
    run = run_on(device, tmp_path / "run", "bert", precision="bfloat16", **changes)
    for record, reference in zip(records(run), records(expected), strict=True):
        assert record["loss"] == pytest.approx(reference["loss"], rel=0.02)


def test_batches_are_on_the_device_and_the_same(device: torch.device) -> None:
    setup = pretrain_setup(dry(small("bert")))
    loader = train_dataloader(setup, DistContext(0, 1, device))
    try:
        for step in range(3):
            expected = loader.make_batches(step)
            for batch, reference in zip(loader.batches(step), expected, strict=True):
                assert {tensor.device for tensor in batch.tensors.values()} == {device}
                assert [
                    name
                    for name, tensor in batch.tensors.items()
                    if not tensor.cpu().equal(reference.tensors[name])
                ] == []
    finally:
        loader.close()


@pytest.mark.parametrize("family", ["bert", "gpt", "electra", "t5"])
def test_passes_of_a_step_do_not_wait_for_the_device(family: str, device: torch.device) -> None:
    """Forward and backward passes; the norm of the gradients is read once a step."""
    setup = pretrain_setup(dry(small(family)))
    dist = DistContext(0, 1, device)
    model = setup.objective.model(setup.family, setup.model_config).to(device)
    trainer = Trainer(
        LossModule(setup.objective, model), setup.config, dist, train_dataloader(setup, dist)
    )
    try:
        trainer.train_step(trainer.train_dataloader.batches(0))
        batches = trainer.train_dataloader.batches(1)
        torch.cuda.synchronize(device)
        torch.cuda.set_sync_debug_mode("error")
        sums = trainer.forward_backward(batches)
    finally:
        torch.cuda.set_sync_debug_mode("default")
        trainer.train_dataloader.close()
    assert sums.compute(trainer.loss_weights)["loss"] > 0


def test_offsets_of_documents_are_copied_with_the_batch(device: torch.device) -> None:
    setup = pretrain_setup(dry(small("bert")))
    dataset = setup.objective.dataset(setup.corpus.split("train"), 0)
    batch = setup.objective.collate([dataset.example(k, generator(0, k)) for k in range(4)])
    transfer = DeviceTransfer(device)
    (copy,) = transfer.finish(transfer.start([batch]))
    offsets = attached_offsets(copy.tensors["document_ids"])
    assert offsets is not None and offsets.device == device
    assert offsets.tolist() == document_offsets(batch.tensors["document_ids"]).tolist()


def test_a_copy_is_finished_before_its_use(device: torch.device) -> None:
    setup = pretrain_setup(dry(small("bert")))
    dataset = setup.objective.dataset(setup.corpus.split("train"), 0)
    batch = setup.objective.collate([dataset.example(0, generator(0))])
    transfer = DeviceTransfer(device)
    sums = []
    for _ in range(50):
        (copy,) = transfer.finish(transfer.start([batch]))
        sums.append(copy.tensors["input_ids"].sum())
    assert {int(total) for total in sums} == {int(batch.tensors["input_ids"].sum())}
