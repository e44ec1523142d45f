"""Sharded checkpoints in the zoo's layout: writing, reading, and checks of the index."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.checkpoints import Make
from zoo.checkpoint import load_checkpoint
from zoo.conformance.verify import verify
from zoo.conversion import writers
from zoo.conversion.convert import convert
from zoo.conversion.safetensors_writer import write_weights
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir

INDEX = "model.safetensors.index.json"


@pytest.fixture
def sharded(hub_checkpoint: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint in shards of at most 8 kB, except for larger tensors."""
    monkeypatch.setattr(
        writers, "write_weights", lambda *a, **k: write_weights(*a, **k, shard_bytes=8192)
    )
    source = hub_checkpoint()
    convert(CheckpointDir(source, "source"), tmp_path / "ours")
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    return tmp_path


def test_shards_equal_a_single_file(sharded: Path) -> None:
    index = json.loads((sharded / "ours" / INDEX).read_text())
    names = set(index["weight_map"].values())
    assert len(names) > 3
    assert [name for name in names if not (sharded / "ours" / name).is_file()] == []
    assert [check.outcome for check in verify(sharded / "ours", reference=False)] == ["ok"] * 4


def test_the_reference_library_reads_them(sharded: Path) -> None:
    import transformers

    before = load_file(sharded / "source" / "model.safetensors")
    kind = getattr(transformers, "BertForPreTraining")  # noqa: B009 (wrong type stub)
    model, loading = kind.from_pretrained(sharded / "back", output_loading_info=True)
    assert {key: value for key, value in loading.items() if value} == {}
    state = model.state_dict()
    assert [name for name, tensor in before.items() if not torch.equal(state[name], tensor)] == []


def test_index_that_contradicts_the_shards(sharded: Path) -> None:
    path = sharded / "ours" / INDEX
    index = json.loads(path.read_text())
    name = next(iter(index["weight_map"]))
    del index["weight_map"][name]
    path.write_text(json.dumps(index))
    with pytest.raises(VerificationError, match=name):
        load_checkpoint(sharded / "ours").open_weights()


def test_a_missing_shard(sharded: Path) -> None:
    shard = sorted((sharded / "ours").glob("model-*.safetensors"))[1]
    shard.unlink()
    outcomes = {check.name: check.outcome for check in verify(sharded / "ours", reference=False)}
    assert outcomes["digests"] == "failed"
