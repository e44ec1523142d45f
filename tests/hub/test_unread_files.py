"""Files of a repository that are not downloaded are part of the account."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.checkpoints import Make
from tests.hub.conftest import REPO
from tests.hub.hub_server import Hub
from zoo.checkpoint import load_checkpoint
from zoo.cli import cli

UNREAD = {
    "model_head.pkl": b"a classifier",
    "onnx/model.onnx": b"a graph",
    "pytorch_model.bin": b"the same weights",
}


@pytest.mark.parametrize("offline", [False, True])
def test_a_conversion_names_them(
    offline: bool,
    hub: Hub,
    hub_checkpoint: Make,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = {path.name: path.read_bytes() for path in hub_checkpoint("BertModel").iterdir()}
    hub.add(REPO, {**files, **UNREAD})

    def run(*arguments: object) -> Any:
        return CliRunner().invoke(cli, list(map(str, arguments)), catch_exceptions=False).stdout

    if offline:
        run("fetch", REPO)
    option = ("--offline",) if offline else ()
    report = json.loads(run("convert", REPO, "-o", tmp_path / "model", "--json", *option))
    assert report["account"]["unread_files"].keys() == UNREAD.keys()
    assert "model.safetensors is read" in report["account"]["unread_files"]["pytorch_model.bin"]
    account: Any = load_checkpoint(tmp_path / "model").manifest.account
    assert account["unread_files"] == report["account"]["unread_files"]
    for _ in range(2):  # converted into the store, and from there
        caplog.clear()
        run("run", "features", REPO, "a b", *option)
        assert f"{REPO}: model_head.pkl is not read: " in caplog.text
        assert "pytorch_model.bin" not in caplog.text
