"""Checking a registry against a Hub on loopback."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.checkpoints import Make
from tests.checkpoints import hub_checkpoint as hub_checkpoint
from tests.hub.hub_server import Hub
from tools.check_registry import main

ENTRY = "{name}:\n  family: bert\n  repo: someone/{name}\n  parameters: {parameters}\n"


def run(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
    """Run ``python -m zoo ...`` in a process that has imported torch."""
    assert command[:3] == [sys.executable, "-m", "zoo"]
    return warm.zoo(*command[3:])


def test_every_entry_is_converted_verified_and_counted(
    hub: Hub,
    hub_checkpoint: Make,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from safetensors.numpy import load_file

    monkeypatch.setattr(subprocess, "run", run)
    source = hub_checkpoint("BertModel")
    weights = load_file(source / "model.safetensors")
    count = sum(tensor.size for tensor in weights.values())
    files = {path.name: path.read_bytes() for path in source.iterdir()}
    commit = hub.add("someone/right", files)
    hub.add("someone/counted-wrongly", files)
    hub.add("someone/damaged", {**files, "model.safetensors": files["model.safetensors"][:-1]})
    home = Path(os.environ["ZOO_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    names = {"right": count, "counted-wrongly": count + 1, "damaged": count}
    (home / "registry.yaml").write_text(
        "".join(ENTRY.format(name=name, parameters=number) for name, number in names.items())
    )
    arguments = [*names, "--folder", str(tmp_path / "check")]
    assert main(arguments) == 3
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    right, wrong, damaged = ([cell.strip("| ") for cell in row] for row in rows)
    assert right[:5] == ["right", commit[:12], f"{count:,}", "ok", "ok"]
    assert right[-1] == "ok"
    assert wrong[-1] == f"the registry has {count + 1:,} parameters"
    assert damaged[-1].startswith("exit ") and damaged[1:5] == ["", "", "", ""]
    assert not (tmp_path / "check/right").exists()

    # a result that is recorded is not checked again
    requests = len(hub.requests)
    results = tmp_path / "check/results.jsonl"
    kept = [json.loads(line) for line in results.read_text("utf-8").splitlines()]
    assert [row["name"] for row in kept] == list(names)
    assert main(["right", "--folder", str(tmp_path / "check")]) == 0
    assert len(hub.requests) == requests
