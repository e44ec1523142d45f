"""Files of older and newer versions do what ``docs/api.md`` says: one line, and an exit code."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import Make, hub_checkpoint
from tests.data.making import built, trained
from tests.warm import zoo
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir

__all__ = ["hub_checkpoint"]

# settings of a run of version 0.1, by their names there
SETTINGS_0_1 = """\
family: bert
size: tiny
objective: masked
length: 128
batch_tokens: 4096
steps: 500
schedule:
  kind: linear
  warmup: 50
"""
RECORD_0_1 = {
    "zoo": "0.1.0",
    "command": ["zoo", "pretrain", "bert"],
    "corpus": "/nowhere",
    "corpus_digest": "",
    "parameters": 1,
    "environment": {},
}


def rewrite(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; ``None`` removes a key."""
    value = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value[key] for key in value if value[key] is not None}))


@pytest.fixture
def model(tmp_path: Path, hub_checkpoint: Make) -> Path:
    source = hub_checkpoint("BertModel", num_hidden_layers=1)
    convert(CheckpointDir(source, str(source)), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of version 0.1, as far as it is read."""
    path = tmp_path / "run"
    path.mkdir()
    (path / "config.yaml").write_text(SETTINGS_0_1)
    (path / "run.json").write_text(json.dumps(RECORD_0_1))
    return path


def test_a_run_of_version_0_1_is_not_resumed(run: Path) -> None:
    done = zoo("pretrain", "--resume", run, "--device", "cpu")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and str(run / "config.yaml") in done.stderr


def test_the_model_of_a_run_of_version_0_1_is_read(run: Path, model: Path) -> None:
    model.rename(run / "model")
    rewrite(run / "model" / "zoo.json", digest=None, created_by={"plm-zoo": "0.1.0"})
    done = zoo("run", "embed", run / "model", "a b", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])


def test_a_manifest_without_its_digest_is_accepted_and_reported(model: Path) -> None:
    rewrite(model / "zoo.json", digest=None)
    done = zoo("verify", model)
    assert done.returncode == 0, done.stderr
    assert "zoo.json has no digest: an earlier version wrote it" in done.stdout


@pytest.mark.long
def test_an_export_without_a_record_of_its_validation_warns(model: Path, tmp_path: Path) -> None:
    graph = tmp_path / "graph"
    assert zoo("export", model, "--onnx", "-o", graph).returncode == 0
    rewrite(graph / "zoo.json", digest=None, export=None)
    done = zoo("run", "embed", graph, "a b", "--backend", "onnx", "--json")
    assert done.returncode == 0, done.stderr
    assert "did not pass the export gate" in done.stderr


@pytest.mark.parametrize("name", ["zoo.json", "config.json"])
def test_a_model_of_a_newer_version(model: Path, name: str) -> None:
    rewrite(model / name, zoo=2)
    refused(zoo("run", "embed", model, "a b"))


def test_a_corpus_of_a_newer_version(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("A sentence.\nAnother one.\n\nA document.\n" * 20)
    corpus = tmp_path / "corpus"
    built(corpus, tmp_path / "text.txt", tokenizer=trained("bert"))
    rewrite(corpus / "corpus.json", zoo=2)
    refused(zoo("verify", corpus))


def refused(done: Any) -> None:
    assert done.returncode == 3
    assert done.stderr.count("\n") <= 1
    assert "install a newer plm-zoo" in done.stderr + done.stdout
