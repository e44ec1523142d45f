"""The command ``zoo verify``: every check of a manifest, and its failure."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.checkpoints import Make
from tests.training.runs import DATA
from tests.warm import zoo
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir
from zoo.io.digests.files import hash_file


@pytest.fixture
def model(hub_checkpoint: Make, tmp_path: Path) -> Path:
    convert(CheckpointDir(hub_checkpoint(), "source"), tmp_path / "ours")
    return tmp_path / "ours"


def outcomes(text: str) -> dict[str, str]:
    """Parse the printed checks; return a mapping from name to outcome."""
    names = ("digests", "mapping", "round trip", "ties", "transformers")
    lines = text.splitlines()
    outcome = {
        n: line.removeprefix(n).split()[0] for n in names for line in lines if line.startswith(n)
    }
    return outcome


def forge(model: Path, name: str) -> None:
    """Update the digest of a file in the manifest, as an attacker would."""
    manifest = json.loads((model / "zoo.json").read_text())
    known = hash_file(model / name)
    manifest["files"][name] = {"bytes": known.bytes, "blake3": known.blake3}
    del manifest["digest"]
    (model / "zoo.json").write_text(json.dumps(manifest))


def test_a_sound_checkpoint(model: Path) -> None:
    done = zoo("verify", model)
    assert done.returncode == 0, done.stderr
    assert outcomes(done.stdout) == dict.fromkeys(
        ("digests", "mapping", "round trip", "ties", "transformers"), "ok"
    )


def test_json(model: Path) -> None:
    done = zoo("verify", model, "--json", "--no-parity")
    value = json.loads(done.stdout)
    assert value["ok"] is True
    assert [check["name"] for check in value["checks"]] == [
        "digests",
        "mapping",
        "round trip",
        "ties",
    ]


def test_one_bit(model: Path) -> None:
    path = model / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    done = zoo("verify", model)
    assert done.returncode == 3
    assert "model.safetensors is not what was written" in done.stdout
    assert done.stderr.count("\n") == 1
    done = zoo("verify", model, "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["exit_code"] == 3


@pytest.mark.long
def test_a_model_that_is_sensitive_to_rounding(hub_checkpoint: Make, tmp_path: Path) -> None:
    """The logits are sums of normalized values, whose exact sum is zero: only rounding errors."""
    source = hub_checkpoint("BertForTokenClassification")
    tensors = load_file(source / "model.safetensors")
    last = "bert.encoder.layer.1.output.LayerNorm"
    for name, value in (
        (f"{last}.weight", 1),
        (f"{last}.bias", 0),
        ("classifier.weight", 1000),
        ("classifier.bias", 0.01),
    ):
        tensors[name][:] = value
    save_file(tensors, source / "model.safetensors")
    convert(CheckpointDir(source, "source"), tmp_path / "ours")
    done = zoo("verify", tmp_path / "ours")
    assert done.returncode == 0, done.stdout
    assert "in logits, in float64; float32 rounds more" in done.stdout


def test_values_that_are_no_numbers(hub_checkpoint: Make, tmp_path: Path) -> None:
    """NaN from both implementations does not count as equal."""
    source = hub_checkpoint()
    tensors = load_file(source / "model.safetensors")
    tensors["bert.encoder.layer.1.output.dense.bias"][0] = np.nan
    save_file(tensors, source / "model.safetensors")
    convert(CheckpointDir(source, "source"), tmp_path / "ours")
    done = zoo("verify", tmp_path / "ours")
    assert done.returncode == 3
    assert outcomes(done.stdout)["transformers"] == "failed"
    assert "the first module that differs: layers.1.ffn.down (bert.encoder" in done.stdout


@pytest.mark.parametrize("fault", ["lost", "stray"])
def test_files_both_ways(model: Path, fault: str) -> None:
    if fault == "lost":
        (model / "tokenizer.json").unlink()
    else:
        (model / "notes.txt").write_text("mine")
    done = zoo("verify", model)
    assert done.returncode == 3
    assert outcomes(done.stdout)["digests"] == "failed"


def test_tensors_that_no_longer_match(model: Path) -> None:
    path = model / "model.safetensors"
    tensors = load_file(path)
    tensors["more"] = np.zeros(3, np.float32)
    del tensors["head.bias"]
    save_file(tensors, path)
    forge(model, path.name)
    done = zoo("verify", model)
    assert done.returncode == 3
    result = outcomes(done.stdout)
    assert (result["digests"], result["mapping"]) == ("ok", "failed")
    assert "head.bias" in done.stdout
    assert result["transformers"] == "not"  # not run, as the model is missing


def test_a_directory_that_was_not_converted(hub_checkpoint: Make) -> None:
    done = zoo("verify", hub_checkpoint(name="raw"))
    assert done.returncode == 2
    assert "zoo convert" in done.stderr


def test_a_manifest_that_leads_outside(model: Path) -> None:
    manifest = json.loads((model / "zoo.json").read_text())
    manifest["files"]["../source/config.json"] = manifest["files"]["config.json"]
    del manifest["digest"]
    (model / "zoo.json").write_text(json.dumps(manifest))
    done = zoo("verify", model, "--no-parity")
    assert done.returncode == 3
    assert "outside" in done.stdout


@pytest.mark.parametrize("name", ["zoo.json", "config.json"])
def test_a_description_that_does_not_decode(model: Path, name: str) -> None:
    value = json.loads((model / name).read_text())
    (model / name).write_text(json.dumps(value | {"surprise": 1}))
    done = zoo("verify", model)
    assert done.returncode == 3
    assert "surprise" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_newer_layout(model: Path) -> None:
    value = json.loads((model / "zoo.json").read_text())
    (model / "zoo.json").write_text(json.dumps(value | {"zoo": 99}))
    done = zoo("verify", model)
    assert done.returncode == 3
    assert "newer" in done.stderr


def test_an_exported_directory(small_export: Path) -> None:
    done = zoo("verify", small_export / "export")
    assert done.returncode == 0, done.stderr
    assert "export gate" in done.stdout


def test_a_classifier_without_a_padding_id(tmp_path: Path) -> None:
    """The reference library refuses batches without a padding id; GPT-2 has none by default."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=40, n_embd=32, n_layer=2, n_head=4, pad_token_id=None
    )
    model = transformers.GPT2ForSequenceClassification(config)
    model.save_pretrained(tmp_path / "source")
    convert(CheckpointDir(tmp_path / "source", "source"), tmp_path / "ours")
    done = zoo("verify", tmp_path / "ours")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "largest difference" in done.stdout and "in logits" in done.stdout


def test_a_corpus_a_run_and_its_checkpoint(tmp_path: Path) -> None:
    corpus, run = tmp_path / "corpus", tmp_path / "run"
    settings = {
        "vocab_size": 300,
        "seq_len": 32,
        "global_batch_tokens": 256,
        "max_steps": 2,
        "lr_scheduler.warmup_steps": 1,
    }
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    done = zoo("pretrain", "bert", "--size", "tiny", "-o", run, *DATA, *options)
    assert done.returncode == 0, done.stderr
    built = next((tmp_path / "zoo-home" / "corpora").glob("*/corpus.json")).parent
    built.rename(corpus)
    checkpoint = max((run / "checkpoints").iterdir())
    for path in (corpus, run, checkpoint):
        done = zoo("verify", path, "--json")
        assert done.returncode == 0, done.stderr
        value = json.loads(done.stdout)
        assert value["ok"] and {check["outcome"] for check in value["checks"]} == {"ok"}
        victim = max((p for p in path.rglob("*.*") if p.is_file()), key=lambda p: p.stat().st_size)
        raw = bytearray(victim.read_bytes())
        raw[len(raw) // 2] ^= 1
        victim.write_bytes(raw)
        done = zoo("verify", path)
        assert done.returncode == 3 and victim.name in done.stdout, done.stdout
        raw[len(raw) // 2] ^= 1
        victim.write_bytes(raw)
