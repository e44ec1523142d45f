"""Flags, locks and signals of systems: one module each, and work where they are missing."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.checkpoints import Make, hub_checkpoint
from tests.interfaces import ROOT
from tests.training.runs import DATA
from zoo.io.descriptors import lock_descriptor, read_at

__all__ = ["hub_checkpoint"]
# A process of a system without these modules, signals and functions, as Windows is.
WITHOUT = """
import json, os, select, signal, sys
sys.modules["fcntl"] = sys.modules["resource"] = None
for name in ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGKILL"):
    delattr(signal, name)
for name in ("preadv", "copy_file_range", "sched_getaffinity"):
    delattr(os, name)
del select.poll
from zoo.cli import main
for command in json.loads(sys.argv[1]):
    try:
        main(command)
    except SystemExit as end:
        assert end.code == 0, command
"""


def zoo_elsewhere(
    folder: Path, commands: Sequence[Sequence[str]]
) -> subprocess.CompletedProcess[str]:
    """Run commands in one process without what only POSIX has."""
    environment = {**os.environ, "ZOO_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps(commands)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


SMALL = {"vocab_size": 300, "seq_len": 32, "global_batch_tokens": 256, "eval_sequences": 4}
STEP = (
    "--objective",
    "masked-lm",
    "--max-steps",
    "1",
    *(f"--set={n}={v}" for n, v in SMALL.items()),
)
# An export imports the exporter of torch again, which takes most of the time.
EXPORTED = (("export", "model", "--onnx", "-o", "graph"), ("run", "embed", "graph", "A text."))


@pytest.mark.parametrize("more", [(), pytest.param(EXPORTED, marks=pytest.mark.long)])
def test_models_convert_run_train_and_export_without_fcntl_and_hangups(
    more: tuple[tuple[str, ...], ...], hub_checkpoint: Make, tmp_path: Path
) -> None:
    source = hub_checkpoint("BertModel")
    commands = (
        ("convert", str(source), "-o", "model"),
        ("run", "embed", "model", "A text.", "--output", "vectors.npy"),
        ("pretrain", "bert", *DATA, *STEP, "-o", "run", "-q"),
        *more,
    )
    done = zoo_elsewhere(tmp_path, commands)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "vectors.npy").is_file() and (tmp_path / "run/model").is_dir()


def attribute_names(tree: ast.Module) -> set[str]:
    """Return ``module.name`` of the attributes that a file reads."""
    return {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def test_what_only_some_systems_have_is_used_in_one_module() -> None:
    for path in sorted(ROOT.glob("zoo/**/*.py")):
        code = path.read_text("utf-8")
        if not any(f"{name}." in code for name in ("fcntl", "os", "signal")):
            continue
        names = attribute_names(ast.parse(code))
        module = path.relative_to(ROOT).as_posix()
        if module != "zoo/io/descriptors.py":
            assert not {name for name in names if name.startswith("fcntl.")}, module
            flags = {"os.O_CLOEXEC", "os.O_DIRECTORY", "os.O_NOFOLLOW", "os.O_NONBLOCK"}
            assert not names & {*flags, "os.preadv"}, module
        if module != "zoo/io/signals.py":
            signals = {"signal.SIGHUP", "signal.SIGQUIT", "signal.SIGUSR1", "signal.SIGKILL"}
            assert not names & signals, module


def test_a_lock_that_another_process_holds_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with path.open() as file, path.open() as other_file:
        lock_descriptor(file.fileno(), shared=True)
        lock_descriptor(
            other_file.fileno(), shared=True, wait=False
        )  # shared locks do not conflict
        with pytest.raises(BlockingIOError):
            lock_descriptor(other_file.fileno(), wait=False)


@pytest.mark.parametrize("has_preadv", [True, False])
def test_bytes_are_read_at_an_offset(
    has_preadv: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_preadv:
        monkeypatch.delattr(os, "preadv")
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    buffer = bytearray(4)
    with path.open("rb") as file:
        assert read_at(file.fileno(), buffer, 3) == 4 and buffer == b"3456"
        assert read_at(file.fileno(), buffer, 8) == 2 and buffer == b"8956"
        assert read_at(file.fileno(), memoryview(buffer)[1:3], 0) == 2 and buffer == b"8016"
