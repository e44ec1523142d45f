"""Malformed checkpoint files: documented errors in bounded time and memory."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.checkpoints import Make
from tests.processes import run_limited
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.conversion.open import open_source
from zoo.errors import SourceError, VerificationError, ZooError
from zoo.hub.source import CheckpointDir
from zoo.io.tensors.safetensors import SafetensorsReader

MB = 1_000_000


@pytest.mark.parametrize("cases", [12, pytest.param(0, marks=pytest.mark.long)])
def test_malformed_configurations_raise_documented_errors(tmp_path: Path, cases: int) -> None:
    command = [sys.executable, "-m", "tests.conversion.malformed", tmp_path, cases]
    done = run_limited(command, seconds=900, address_space=2000 * MB, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.peak_bytes < 400 * MB


@pytest.mark.by_default("changes0")
@pytest.mark.parametrize(
    "changes",
    [
        {"num_labels": 10**10, "id2label": None},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": 9_999},
        {"vocab_size": 2**31 - 1},
        {"max_position_embeddings": 10**9, "hidden_size": 10**9},
    ],
)
def test_absurd_sizes_allocate_nothing(
    hub_checkpoint: Make, changes: dict[str, int | None]
) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, **changes}))
    command = ["zoo", "convert", source, "--dry-run", "--head", "sequence-classification"]
    done = run_limited([*command, "--init-head"], seconds=30, address_space=1000 * MB)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert done.peak_bytes < 150 * MB


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_special_files(hub_checkpoint: Make, name: str, kind: str) -> None:
    source = hub_checkpoint()
    (source / name).unlink()
    if kind == "pipe":
        os.mkfifo(source / name)
    elif kind == "device":
        (source / name).symlink_to("/dev/zero")
    else:
        (source / name).mkdir()
    with pytest.raises(SourceError):
        convert(CheckpointDir(source, "source"), None, dry_run=True)


@pytest.mark.parametrize("target", ["nowhere", "model.safetensors"])
def test_weights_that_cannot_be_read_are_not_replaced_by_others(
    hub_checkpoint: Make, target: str
) -> None:
    source = hub_checkpoint()
    torch.save(load_file(source / "model.safetensors"), source / "pytorch_model.bin")
    (source / "model.safetensors").unlink()
    (source / "model.safetensors").symlink_to(target)  # a missing file, or a link to itself
    with pytest.raises(SourceError, match=r"model\.safetensors: "):
        convert(CheckpointDir(source, "source"), None, dry_run=True, allow_pickle=True)


@pytest.mark.by_default("{}", "content8")
@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", '{"weight_map": 1}', '{"weight_map": ["a"]}', '{"weight_map": {}}'),
        *('{"weight_map": {"a": 1}}', '{"weight_map": {"a": "../x"}}', "[" * 100_000),
        *('{"weight_map": {"a": "model.safetensors\\u0000"}}', '{"weight_map": {"a": "b"}}'),
    ],
)
def test_malformed_index(hub_checkpoint: Make, tmp_path: Path, content: str) -> None:
    convert(CheckpointDir(hub_checkpoint(), "source"), tmp_path / "ours")
    (tmp_path / "ours" / "model.safetensors.index.json").write_text(content)
    with pytest.raises(ZooError) as caught:
        load_checkpoint(tmp_path / "ours").open_weights()
    assert caught.value.exit_code in (3, 4) and "\n" not in str(caught.value)


def test_malformed_architectures(hub_checkpoint: Make) -> None:
    source = hub_checkpoint()
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "architectures": 3}))
    with pytest.raises(VerificationError, match="architectures = 3 is not a list of names"):
        convert(CheckpointDir(source, "source"), None, dry_run=True)


def test_weights_are_closed_after_a_damaged_file(
    hub_checkpoint: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = hub_checkpoint()
    (source / "modules.json").write_text("[]")
    settings = {"model_type": "CrossEncoder"}
    (source / "config_sentence_transformers.json").write_text(json.dumps(settings))
    closed = []
    monkeypatch.setattr(SafetensorsReader, "close", lambda reader: closed.append(reader))
    with pytest.raises(VerificationError, match="is not implemented in a cross-encoder"):
        open_source(CheckpointDir(source, "source"))
    assert len(closed) == 1
