"""Configurations without ``model_type``, such as those of SciBERT and TinyBERT."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.checkpoints import Make
from tests.hub.hub_server import Hub
from zoo.checkpoint import load_checkpoint
from zoo.cli import cli
from zoo.conversion.inspect import find_config
from zoo.conversion.open import open_source
from zoo.errors import UsageError, VerificationError
from zoo.hub.source import CheckpointDir

SAID = ("model_type", "architectures")


def without(path: Path, *keys: str, **changes: object) -> Path:
    """Remove keys from a configuration."""
    config = json.loads((path / "config.json").read_text())
    remaining = {key: value for key, value in config.items() if key not in keys}
    (path / "config.json").write_text(json.dumps(remaining | changes))
    return path


def test_model_type_from_the_class_name(hub_checkpoint: Make) -> None:
    path = without(hub_checkpoint(), "model_type")
    assert open_source(CheckpointDir(path, "source")).family.name == "bert"


def test_class_name_selects_the_model_type(tmp_path: Path) -> None:
    config = {"architectures": ["MT5ForConditionalGeneration"], "d_model": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert find_config(CheckpointDir(tmp_path, "source"))[2]["model_type"] == "mt5"


def test_model_type_from_the_option(hub_checkpoint: Make, tmp_path: Path) -> None:
    path = without(hub_checkpoint("BertModel"), *SAID, cell={}, emb_size=32, structure=[])
    argv = ["convert", str(path), "--model-type", "bert", "-o", str(tmp_path / "ours")]
    done = CliRunner().invoke(cli, argv, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert load_checkpoint(tmp_path / "ours").family.name == "bert"
    back = ["convert", str(tmp_path / "ours"), "--to", "hub", "-o", str(tmp_path / "hub")]
    assert CliRunner().invoke(cli, back, catch_exceptions=False).exit_code == 0
    written = json.loads((tmp_path / "hub" / "config.json").read_text())
    assert written["model_type"] == "bert"
    assert written["emb_size"] == 32


def test_model_type_from_the_registry(hub: Hub, hub_checkpoint: Make) -> None:
    path = without(hub_checkpoint("BertModel"), *SAID)
    hub.add("allenai/scibert_scivocab_uncased", {p.name: p.read_bytes() for p in path.iterdir()})
    for name in ("scibert-uncased", "allenai/scibert_scivocab_uncased"):
        done = CliRunner().invoke(cli, ["convert", name, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["family"] == "bert"


def test_unknown_model_type(hub_checkpoint: Make) -> None:
    path = without(hub_checkpoint(), *SAID)
    with pytest.raises(VerificationError, match=r"no model_type.*--model-type"):
        open_source(CheckpointDir(path, "source"))


def test_contradicting_model_type(hub_checkpoint: Make) -> None:
    with pytest.raises(UsageError, match="'bert', not 'electra'"):
        open_source(CheckpointDir(hub_checkpoint(), "source", model_type="electra"))
