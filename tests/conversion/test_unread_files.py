"""Files with weights or labels that nobody reads are named, wherever a directory is opened."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.adapters.making import write_random_adapter
from tests.checkpoints import Make
from zoo.checkpoint import load_checkpoint
from zoo.cli import cli
from zoo.conversion.unread_files import find_unread_files, unread_parts
from zoo.errors import SourceError

PARTS = {
    "model_head.pkl": "SetFit",
    "config_setfit.json": "SetFit",
    "colbert_linear.pt": "vectors of tokens",
    "sparse_linear.pt": "weights of terms",
    "german.adapter": "an adapter",
    "lora/adapter_model.safetensors": "an adapter",
}
ORDINARY = {
    "pytorch_model.bin": "other weights; model.safetensors is read",
    "tf_model.h5": "other weights",
    "model.fp16.safetensors": "other weights",
    "onnx/model.onnx": "other weights",
    "checkpoint-5/model.safetensors": "other weights",
    "optimizer.pt": "training run",
    "labels.txt": "names of labels",
}
READ = ("config.json", "model.safetensors", "vocab.txt", "README.md", "1_Pooling/config.json")


def zoo(*arguments: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)))


@pytest.fixture
def source(hub_checkpoint: Make) -> Path:
    path = hub_checkpoint("BertModel")
    for name in (*PARTS, *ORDINARY):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(b"not read")
    (path / "1_Pooling").mkdir()
    (path / "README.md").write_text("A model.")
    return path


def assert_named(unread: dict[str, str]) -> None:
    assert unread.keys() == {*PARTS, *ORDINARY}
    for name, reason in {**PARTS, **ORDINARY}.items():
        assert reason in unread[name], name


def test_each_file_is_named_with_the_reason() -> None:
    names = [*PARTS, *ORDINARY, *READ]
    unread = find_unread_files(names, READ)
    assert_named(unread)
    assert set(unread_parts(unread)) == set(PARTS)


@pytest.mark.parametrize("option", ["--dry-run", "-o"])
def test_a_conversion_names_them(option: str, source: Path, tmp_path: Path) -> None:
    out = [option] if option == "--dry-run" else [option, tmp_path / "model"]
    text = zoo("convert", source, *out).stdout
    assert "every tensor of model.safetensors is accounted for" in text
    assert "not read     13" in text and "and 5 more" in text
    shutil.rmtree(tmp_path / "model", ignore_errors=True)
    report = json.loads(zoo("convert", source, *out, "--json").stdout)
    assert_named(report["account"]["unread_files"])
    if option == "-o":
        manifest: Any = load_checkpoint(tmp_path / "model").manifest
        assert_named(manifest.account["unread_files"])
        verified = zoo("verify", tmp_path / "model", "--no-parity").stdout
        assert "not read of the source: README" not in verified
        assert "checkpoint-5/model.safetensors" in verified.replace("\n", " ")


def test_a_command_that_converts_warns_of_parts(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At every call, and also of files that were added since the conversion."""
    for _ in range(2):
        caplog.clear()
        assert zoo("run", "features", source, "a b").exit_code == 0
        for name in PARTS:
            assert f"{source}: {name} is not read: " in caplog.text
        assert "pytorch_model.bin" not in caplog.text
    for name in PARTS:
        (source / name).unlink()
    caplog.clear()
    assert zoo("run", "features", source, "a b").exit_code == 0
    assert "is not read" not in caplog.text


@pytest.mark.parametrize("option", ["--dry-run", "-o"])
def test_a_new_head_says_which_trained_one_is_not_read(
    option: str, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = [option] if option == "--dry-run" else [option, tmp_path / "model"]
    command = ("convert", source, "--head", "sequence-classification", "--init-head", *out)
    outcome = zoo(*command, "--force")
    warning = "the weights of the head sequence-classification are random: the trained head in "
    assert f"{warning}model_head.pkl is not read" in caplog.text
    assert "new random weights; those of model_head.pkl are not read" in outcome.stdout
    account = json.loads(zoo(*command, "--force", "--json").stdout)["account"]
    assert account["replaced_heads"] == ["model_head.pkl"]
    if option == "-o":
        assert load_checkpoint(tmp_path / "model").manifest.account == account
    (source / "model_head.pkl").unlink()
    caplog.clear()
    outcome = zoo(*command, "--force")
    assert "new random weights\n" in outcome.stdout
    assert "random" not in caplog.text
    account = json.loads(zoo(*command, "--force", "--json").stdout)["account"]
    assert account["replaced_heads"] == [] != account["initialised"]


def test_a_directory_without_such_files_has_no_such_line(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    source = hub_checkpoint("BertModel")
    outcome = zoo("convert", source, "-o", tmp_path / "model")
    assert "not read" not in outcome.stdout
    outcome = zoo("convert", tmp_path / "model", "--to", "hub", "-o", tmp_path / "hub")
    assert "not read" not in outcome.stdout
    report = json.loads(zoo("convert", tmp_path / "hub", "--dry-run", "--json").stdout)
    assert report["account"]["unread_files"] == {}


def test_an_adapter_next_to_a_model_stops_the_conversion(source: Path, tmp_path: Path) -> None:
    (source / "adapter_model.safetensors").write_bytes(b"not read")
    outcome = zoo("convert", source, "-o", tmp_path / "model")
    assert isinstance(outcome.exception, SourceError)
    assert "move its files away to convert the model without it" in str(outcome.exception)
    assert not (tmp_path / "model").exists()


def test_files_next_to_an_adapter_are_named(hub_checkpoint: Make, tmp_path: Path) -> None:
    zoo("convert", hub_checkpoint("BertForSequenceClassification"), "-o", tmp_path / "base")
    base = load_checkpoint(tmp_path / "base")
    write_random_adapter(base, tmp_path / "adapter", method="lora")
    zoo("convert", tmp_path / "adapter", "--to", "hub", "-o", tmp_path / "peft")
    for name in ("adapter_model.bin", "optimizer.pt"):
        (tmp_path / "peft" / name).write_bytes(b"not read")
    command = ("convert", tmp_path / "peft", "--base", base.path, "-o", tmp_path / "back", "--json")
    report = json.loads(zoo(*command).stdout)
    assert report["unread_files"].keys() == {"adapter_model.bin", "optimizer.pt"}
    manifest = load_checkpoint(tmp_path / "back").manifest
    assert manifest.account["unread_files"] == report["unread_files"]
