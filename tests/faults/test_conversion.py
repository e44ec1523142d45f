"""Faulty input to a conversion: an error of one line, a documented exit code, and no output.

Every fault is tried on the command line, in a directory that must stay unchanged.
"""

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.checkpoints import Make
from tests.warm import zoo

Tensors = dict[str, np.ndarray]
Change = Callable[[Path], None]


def listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def refused(folder: Path, source: object, code: int, *says: str) -> None:
    """Convert, and check for an error of one line, the exit code, and no output."""
    before = listing(folder)
    done = zoo("convert", source, "-o", folder / "deep" / "out", cwd=folder)
    assert done.returncode == code, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
    for text in says:
        assert text in done.stderr
    assert listing(folder) == before


def edit_tensors(path: Path, change: Callable[[Tensors], Tensors]) -> None:
    save_file(change(load_file(path / "model.safetensors")), path / "model.safetensors")


def edit_config(path: Path, **changes: object) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | changes))


def edit_header(path: Path, change: Callable[[dict[str, dict[str, Any]]], None]) -> None:
    """Rewrite the header of a safetensors file, and keep its data."""
    file = path / "model.safetensors"
    raw = file.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


def enlarge(path: Path, name: str, rows: int) -> None:
    """Add zero rows to a tensor as a hole in a sparse file."""
    columns = load_file(path / "model.safetensors")[name].shape[1]
    edit_tensors(path, lambda stored: {n: t for n, t in stored.items() if n != name})

    def add(header: dict[str, dict[str, Any]]) -> None:
        ends = [entry["data_offsets"][1] for n, entry in header.items() if n != "__metadata__"]
        offsets = [max(ends), max(ends) + 4 * rows * columns]
        header[name] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": offsets}

    edit_header(path, add)
    file = path / "model.safetensors"
    os.truncate(file, file.stat().st_size + 4 * rows * columns)


def test_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    refused(tmp_path, "source", 4, "source is empty")


def test_a_directory_without_a_configuration(hub_checkpoint: Make, tmp_path: Path) -> None:
    (hub_checkpoint() / "config.json").unlink()
    refused(tmp_path, "source", 4, "holds no config.json")


def test_the_directory_of_a_run(hub_checkpoint: Make, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    hub_checkpoint().rename(tmp_path / "run/model")
    refused(tmp_path, "run", 4, "run holds no config.json; give run/model, the model of this run")


def test_a_file_instead_of_a_directory(hub_checkpoint: Make, tmp_path: Path) -> None:
    refused(tmp_path, hub_checkpoint() / "config.json", 2, "is not a directory")


def test_an_unknown_model_type(hub_checkpoint: Make, tmp_path: Path) -> None:
    edit_config(hub_checkpoint(), model_type="berd")
    refused(tmp_path, "source", 2, "'berd'", "its class BertForPreTraining is one of bert")


def test_no_model_type(hub_checkpoint: Make, tmp_path: Path) -> None:
    (hub_checkpoint() / "config.json").write_text("{}")
    refused(tmp_path, "source", 3, "no model_type")


@pytest.mark.parametrize("text", ["{", "[]", "\ufeff", "null"])
def test_a_configuration_that_is_not_one(hub_checkpoint: Make, tmp_path: Path, text: str) -> None:
    (hub_checkpoint() / "config.json").write_text(text)
    refused(tmp_path, "source", 3, "config.json")


@pytest.mark.by_default("position_embedding_type", "hidden_size")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
        ("add_cross_attention", True),
        ("hidden_act", "snake"),
        ("hidden_size", "wide"),
        ("num_attention_heads", 5),
        ("quantization_config", {"bits": 4}),
        ("num_hidden_layers", 0),
    ],
)
def test_a_setting_that_would_compute_something_else(
    hub_checkpoint: Make, tmp_path: Path, key: str, value: object
) -> None:
    edit_config(hub_checkpoint(), **{key: value})
    refused(tmp_path, "source", 3, "config.json")


def test_no_weights(hub_checkpoint: Make, tmp_path: Path) -> None:
    (hub_checkpoint() / "model.safetensors").unlink()
    refused(tmp_path, "source", 4, "no weights")


def test_only_a_pickle(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    (source / "model.safetensors").rename(source / "pytorch_model.bin")
    refused(tmp_path, "source", 2, "--allow-pickle")


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_file(hub_checkpoint: Make, tmp_path: Path, keep: int) -> None:
    file = hub_checkpoint() / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    refused(tmp_path, "source", 3, "model.safetensors: not a sound safetensors file")


def test_a_header_that_lies_about_offsets(hub_checkpoint: Make, tmp_path: Path) -> None:
    def lie(header: dict[str, dict[str, Any]]) -> None:
        header["bert.pooler.dense.bias"]["data_offsets"] = [0, 128]

    edit_header(hub_checkpoint(), lie)
    refused(tmp_path, "source", 3, "not a sound safetensors file")


def test_a_missing_shard(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    stored = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    names = sorted(stored)
    halves = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
    for file, part in halves.items():
        save_file({name: stored[name] for name in part}, source / file)
    index = {"weight_map": {name: file for file, part in halves.items() for name in part}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    done = zoo("convert", source, "-o", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (source / "model-00002-of-00002.safetensors").unlink()
    refused(tmp_path, "source", 3, "model-00002-of-00002.safetensors")


def test_one_extra_tensor(hub_checkpoint: Make, tmp_path: Path) -> None:
    extra = {"bert.encoder.layer.0.adapter.weight": np.zeros((3, 3), np.float32)}
    edit_tensors(hub_checkpoint(), lambda stored: stored | extra)
    refused(tmp_path, "source", 3, "1 in the file that no rule knows", *extra)


def test_one_missing_tensor(hub_checkpoint: Make, tmp_path: Path) -> None:
    gone = "bert.encoder.layer.1.attention.self.key.bias"
    edit_tensors(hub_checkpoint(), lambda s: {n: t for n, t in s.items() if n != gone})
    refused(tmp_path, "source", 3, "1 missing from the file", gone)


def test_one_tensor_of_the_wrong_shape(hub_checkpoint: Make, tmp_path: Path) -> None:
    name = "bert.encoder.layer.1.output.dense.weight"
    edit_tensors(hub_checkpoint(), lambda s: s | {name: np.ascontiguousarray(s[name].T)})
    refused(tmp_path, "source", 3, "1 of a different shape", f"{name} 48x32, not 32x48")


def test_one_tensor_twice(hub_checkpoint: Make, tmp_path: Path) -> None:
    name = "embeddings.word_embeddings.weight"
    edit_tensors(hub_checkpoint(), lambda s: s | {name: s[f"bert.{name}"].copy()})
    refused(tmp_path, "source", 3, name)


def test_two_trunks(hub_checkpoint: Make, tmp_path: Path) -> None:
    def double(stored: Tensors) -> Tensors:
        backbone = {n.removeprefix("bert."): t for n, t in stored.items() if n.startswith("bert.")}
        return {f"{side}.{n}": t for side in ("encoder", "decoder") for n, t in backbone.items()}

    edit_tensors(hub_checkpoint(), double)
    refused(tmp_path, "source", 3, "holds 2 backbones", "decoder., encoder.")


def test_tied_tensors_that_differ(hub_checkpoint: Make, tmp_path: Path) -> None:
    def untie(stored: Tensors) -> Tensors:
        decoder = stored["bert.embeddings.word_embeddings.weight"].copy()
        decoder[3, 3] += 1
        return stored | {"cls.predictions.decoder.weight": decoder}

    edit_tensors(hub_checkpoint(), untie)
    refused(
        tmp_path, "source", 3, "cls.predictions.decoder.weight", "differ", "tie_word_embeddings"
    )


def test_a_buffer_with_other_values(hub_checkpoint: Make, tmp_path: Path) -> None:
    ids = {"bert.embeddings.position_ids": np.arange(40)[::-1].copy()}
    edit_tensors(hub_checkpoint(), lambda s: s | ids)
    refused(tmp_path, "source", 3, "position_ids", "different values")


@pytest.mark.parametrize(
    "changes",
    [{"num_hidden_layers": 1}, {"num_hidden_layers": 3}, {"vocab_size": 50}, {"hidden_size": 16}],
)
def test_a_configuration_that_contradicts_the_weights(
    hub_checkpoint: Make, tmp_path: Path, changes: dict[str, int]
) -> None:
    edit_config(hub_checkpoint(), **changes)
    refused(tmp_path, "source", 3, "the tensors do not match the rules")


def test_a_vocabulary_that_does_not_fit(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    with (source / "vocab.txt").open("a") as file:
        file.write("more\nwords\n")
    refused(tmp_path, "source", 3, "'words'", "which has 17")


def test_an_output_that_exists(hub_checkpoint: Make, tmp_path: Path) -> None:
    source, out = hub_checkpoint(), tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("do not touch")
    for options in ([], ["--force"]):
        done = zoo("convert", source, "-o", out, *options, cwd=tmp_path)
        assert done.returncode == 2
        assert "--force" in done.stderr
        assert listing(out) == {"mine.txt"}
    (out / "mine.txt").unlink()
    for to in ("hub", "zoo", "hub"):
        done = zoo("convert", source, "-o", out, "--to", to, "--force", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert ("zoo.json" in listing(out)) == (to == "zoo")
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_a_failed_replacement_keeps_what_was_there(hub_checkpoint: Make, tmp_path: Path) -> None:
    source, out = hub_checkpoint(), tmp_path / "out"
    assert zoo("convert", source, "-o", out, cwd=tmp_path).returncode == 0
    before = (out / "zoo.json").read_bytes()
    edit_config(source, num_hidden_layers=1)
    assert zoo("convert", source, "-o", out, "--force", cwd=tmp_path).returncode == 3
    assert (out / "zoo.json").read_bytes() == before


def test_an_output_below_a_file(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    (tmp_path / "file").write_text("")
    done = zoo("convert", source, "-o", tmp_path / "file" / "out", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cannot write" in done.stderr


def test_a_read_only_output(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    done = zoo("convert", source, "-o", "/proc/zoo-out", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "cannot write /proc" in done.stderr


def test_a_full_disk(hub_checkpoint: Make, tmp_path: Path) -> None:
    """A file size limit makes the system call fail as on a full disk."""
    source = hub_checkpoint()
    before = listing(tmp_path)
    program = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        f"sys.argv = ['zoo', 'convert', {str(source)!r}, '-o', 'out']\n"
        "from zoo.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "cannot write" in done.stderr
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_an_interruption_leaves_nothing(
    hub_checkpoint: Make, tmp_path: Path, number: signal.Signals
) -> None:
    source = hub_checkpoint("BertModel")
    rows = 6_400_000  # 0.8 GB, slow enough to be interrupted
    enlarge(source, "embeddings.position_embeddings.weight", rows)
    edit_config(source, max_position_embeddings=rows)
    before = listing(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "zoo", "convert", source, "-o", tmp_path / "out"],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob(".out.*/model.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(number)
    try:
        _, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, stderr
    assert stderr == "error: interrupted\n"
    assert listing(tmp_path) == before


def test_threads_find_imported_what_they_use() -> None:
    """An interrupted import keeps its lock; a thread with the same import would deadlock."""
    code = "import sys, zoo.conversion.convert; sys.exit('blake3' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_source_that_is_also_the_target(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint()
    done = zoo("convert", source, "-o", source, "--force", cwd=tmp_path)
    assert done.returncode == 2
    assert "model.safetensors" in listing(source)
    assert "zoo.json" not in listing(source)
