"""Conversion of ``.bin`` files: same result as from safetensors, and refusal of other pickles."""

import json
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests import warm
from tests.checkpoints import Make
from tests.converters.pickles import dictionary, pickled, tensor, text, zipped


def convert(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return warm.zoo("convert", *options, cwd=folder)


def save_as_bin(source: Path, *, shards: int, zipped: bool) -> None:
    """Replace the safetensors file of a checkpoint by a ``torch.save`` file of its tensors."""
    tensors = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for k in range(shards):
        number = f"-{k + 1:05d}-of-{shards:05d}" if shards > 1 else ""
        shard = {name: tensors[name] for name in names[k::shards]}
        file = f"pytorch_model{number}.bin"
        torch.save(shard, source / file, _use_new_zipfile_serialization=zipped)
        weight_map |= dict.fromkeys(shard, file)
    if shards > 1:
        index = source / "pytorch_model.bin.index.json"
        index.write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}))


@pytest.mark.by_default("3-True")
@pytest.mark.parametrize(("shards", "zipped"), [(1, False), (3, True)])
def test_a_pickle_converts_to_the_same_bytes(
    hub_checkpoint: Make, tmp_path: Path, shards: int, zipped: bool
) -> None:
    source = hub_checkpoint()
    assert convert(tmp_path, "source", "-o", "expected").returncode == 0
    save_as_bin(source, shards=shards, zipped=zipped)
    done = convert(tmp_path, "source", "-o", "out", "--allow-pickle")
    assert done.returncode == 0, done.stderr
    name = "model.safetensors"
    assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "expected" / name).read_bytes()
    manifest = json.loads((tmp_path / "out" / "zoo.json").read_text())
    read = {name for name in manifest["source"]["files"] if name.endswith(".bin")}
    assert read == {path.name for path in source.glob("*.bin")}
    assert manifest["source"]["format"] == "pytorch"


def test_safetensors_are_preferred(hub_checkpoint: Make, tmp_path: Path) -> None:
    (hub_checkpoint() / "pytorch_model.bin").write_bytes(b"never opened")
    done = convert(tmp_path, "source", "-o", "out", "--allow-pickle")
    assert done.returncode == 0, done.stderr


def test_a_hostile_pickle_is_one_line_and_leaves_nothing(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    source = hub_checkpoint()
    (source / "model.safetensors").unlink()
    program = b"cposix\nsystem\n(" + text(f"touch {tmp_path / 'harm'}") + b"tR"
    (source / "pytorch_model.bin").write_bytes(
        zipped(pickled(dictionary({"a": tensor(), "b": program})))
    )
    for options in (["--dry-run"], ["-o", "out"]):
        done = convert(tmp_path, "source", "--allow-pickle", *options)
        assert done.returncode == 3, done.stderr
        assert "'posix.system'" in done.stderr
        assert done.stderr.count("\n") == 1
        assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_file_without_checksums_needs_the_option(hub_checkpoint: Make, tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        save_as_bin(hub_checkpoint(), shards=1, zipped=True)
    finally:
        torch.serialization.set_crc32_options(True)
    done = convert(tmp_path, "source", "-o", "out", "--allow-pickle")
    assert done.returncode == 3
    assert "pytorch_model.bin: the CRC-32 of its record 'data.pkl' does not match" in done.stderr
    assert "`zoo convert --ignore-crc`" in done.stderr
    assert done.stderr.count("\n") == 1
    done = convert(tmp_path, "source", "-o", "out", "--allow-pickle", "--ignore-crc")
    assert done.returncode == 0, done.stderr
