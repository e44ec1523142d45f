"""Repositories of the Hub with adapters: the error says what they hold, and what to do."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.checkpoints import Make
from tests.hub.conftest import REPO
from tests.hub.hub_server import Hub
from zoo.checkpoint import load_checkpoint
from zoo.cli import cli
from zoo.errors import SourceError, UsageError

OF_PEFT = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"not read"}
OF_ADAPTERHUB = {"adapter_config.json": b"{}", "pytorch_adapter.bin": b"not read"}


def convert(*arguments: object) -> BaseException | None:
    return CliRunner().invoke(cli, ["convert", *map(str, arguments)]).exception


@pytest.mark.parametrize("files", [OF_PEFT, OF_ADAPTERHUB], ids=["peft", "adapterhub"])
@pytest.mark.parametrize("depth", ["", "de/", "de/step-100/"])
@pytest.mark.parametrize("side_files", [{}, {"config.json": b"{}", "vocab.txt": b"a"}])
def test_a_repository_of_adapters_is_named_as_such(
    files: dict[str, bytes], depth: str, side_files: dict[str, bytes], hub: Hub, tmp_path: Path
) -> None:
    names = {f"{depth}{name}": content for name, content in files.items()}
    if depth:
        names |= {f"fr/{name}": content for name, content in files.items()}
    hub.add(REPO, {"README.md": b"Adapters.", **side_files, **names})
    error = convert(REPO, "-o", tmp_path / "model")
    assert isinstance(error, SourceError)
    kinds = "adapters of peft or AdapterHub in folders" if depth else "an adapter of peft"
    count = len(names) - 1
    assert f"{REPO} holds {kinds}" in error.what
    assert f"({depth}adapter_config.json and {count} more)" in error.what
    command = f"`zoo convert DIR{'/FOLDER' if depth else ''} --base REF -o ADAPTER`"
    assert command in str(error.hint) and "from a directory" in str(error.hint)
    assert not (tmp_path / "model").exists()


def test_a_model_next_to_folders_of_adapters_is_converted(
    hub: Hub, hub_checkpoint: Make, tmp_path: Path
) -> None:
    files = {path.name: path.read_bytes() for path in hub_checkpoint("BertModel").iterdir()}
    hub.add(REPO, {**files, **{f"de/{name}": content for name, content in OF_PEFT.items()}})
    assert convert(REPO, "-o", tmp_path / "model") is None
    account: Any = load_checkpoint(tmp_path / "model").manifest.account
    assert account["unread_files"].keys() == {f"de/{name}" for name in OF_PEFT}


def test_a_base_is_for_directories(hub: Hub, tmp_path: Path) -> None:
    hub.add(REPO, {f"de/{name}": content for name, content in OF_PEFT.items()})
    error = convert(REPO, "--base", tmp_path, "-o", tmp_path / "adapter")
    assert isinstance(error, UsageError)
    assert f"{REPO} is not a directory, and --base is for the directory" in error.what
    assert "download the adapter, and give its directory" in str(error.hint)
