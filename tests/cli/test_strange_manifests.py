"""Manifests and configurations with values of wrong types give an error of one line."""

import json
import logging
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.in_process import exit_code

VALUES: tuple[Any, ...] = (None, 7, -1, 1.5, True, "text", "../x", "\x1b[31m", [], ["a"], {}, [[]])


@pytest.fixture(autouse=True)
def output_as_before() -> Iterator[None]:
    """Restore process-wide settings that commands change."""
    logger, show = logging.getLogger("zoo"), warnings.showwarning
    handlers, propagate = logger.handlers[:], logger.propagate
    yield
    logger.handlers[:], logger.propagate, warnings.showwarning = handlers, propagate, show


def variants(value: Any) -> Iterator[Any]:
    """Yield copies of a JSON object, each with one value replaced by one of another type."""
    for key, inner in value.items():
        for other in VALUES:
            if type(other) is not type(inner):
                yield {**value, key: other}
        yield {k: v for k, v in value.items() if k != key}
        if isinstance(inner, dict):
            yield from ({**value, key: changed} for changed in variants(inner))


def attempt(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command in this process; return exit code and output if they are not as documented."""
    code = exit_code(command)
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
    sound = code in (0, 2, 3) and len(lines) == (code != 0) and "\x1b" not in err
    return "" if sound and json.loads(out) is not None else f"{code}: {err}"


@pytest.mark.long
@pytest.mark.parametrize("name", ["zoo.json", "config.json"])
@pytest.mark.parametrize("kind", ["model", "export"])
def test_every_key_of_another_type(
    small_export: Path, tmp_path: Path, kind: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / kind
    shutil.copytree(small_export / kind, path)
    value = json.loads((path / name).read_text())
    faults = []
    for changed in variants(value):
        (path / name).write_text(json.dumps(changed))
        if fault := attempt(["info", str(path), "--json"], capsys):
            faults.append(fault)
    assert not faults, faults[:5]


@pytest.mark.parametrize("command", [["verify", "--no-parity"], ["bench", "--iterations", "1"]])
@pytest.mark.parametrize("kind", ["model", "export"])
@pytest.mark.long
def test_every_key_of_another_type_in_commands_that_compute(
    small_export: Path,
    tmp_path: Path,
    kind: str,
    command: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / kind
    shutil.copytree(small_export / kind, path)
    backend = ["--backend", "onnx" if kind == "export" else "cpu"] if command[0] == "bench" else []
    faults = []
    for name in ("zoo.json", "config.json"):
        content = (path / name).read_text()
        for changed in variants(json.loads(content)):
            (path / name).write_text(json.dumps(changed))
            if fault := attempt([*command, *backend, str(path), "--json"], capsys):
                faults.append(fault)
        (path / name).write_text(content)
    assert not faults, faults[:5]


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b"null", b"\xff\xfe", b'{"a":1,"a":2}'])
@pytest.mark.parametrize("name", ["zoo.json", "config.json"])
def test_files_that_hold_no_object(
    small_export: Path,
    tmp_path: Path,
    name: str,
    content: bytes,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(small_export / "model", tmp_path / "model")
    (tmp_path / "model" / name).write_bytes(content)
    for command in ("info", "verify"):
        assert exit_code([command, str(tmp_path / "model")]) == 3
        _, err = capsys.readouterr()
        assert name in err and err.count("\n") == 1
    assert exit_code(["models", "--json"]) == 0
