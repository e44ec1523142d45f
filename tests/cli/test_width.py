"""What commands print fits a terminal of 80 columns; a path that is longer is the one exception.

JSON, which programs read, stays on one line: ``--json``, and the results of ``zoo run`` in a pipe.
"""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.export.conftest import with_tokenizer
from tests.once import written_once
from tests.training.runs import options
from zoo.cli import _run

COLUMNS = 80
Zoo = Callable[..., str]
TEXTS = "".join(f"a b c d e f g h i j {word}\n\n" for word in "abcdefghij" * 30)
TABLE = "text\tlabel\n" + "".join(
    f"{'ab'[k % 2]} c d\t{('red', 'blue')[k % 2]}\n" for k in range(40)
)


def longest(text: str) -> list[str]:
    """Return the lines that are too long, except for words that do not fit in any line."""
    lines = [line for line in text.splitlines() if len(line) > COLUMNS]
    return [line for line in lines if max(map(len, line.split())) <= COLUMNS - 4]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model, its Hub layout, texts, and a table."""
    made = written_once("width", lambda folder: with_tokenizer(folder, "sequence-classification"))
    for name in ("model", "hub"):
        (tmp_path / name).symlink_to(made / name)
    (tmp_path / "texts.txt").write_text(TEXTS)
    (tmp_path / "table.tsv").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    return tmp_path


@pytest.fixture
def zoo(place: Path, capfd: pytest.CaptureFixture[str]) -> Zoo:
    """Run a command; return its output, errors included, whose lines are not too long."""

    def run(*arguments: str, code: int = 0) -> str:
        capfd.readouterr()
        ended = _run(list(arguments))
        shown = "".join(capfd.readouterr())
        assert ended == code, shown
        assert longest(shown) == [], arguments
        return shown

    return run


def test_lists_and_errors(zoo: Zoo) -> None:
    zoo("families")
    zoo("families", "bert")
    zoo("families", "--sizes")
    zoo("models")
    zoo("models", "squad")
    zoo("plugins")
    zoo("plugins", "info", "converters")
    zoo("doctor")
    zoo("info", "all-minilm-l6-v2")
    zoo("info", "t5-small")
    zoo("info", "no-such-model-of-any-name", code=2)
    zoo("families", "brt", code=2)
    zoo("run", "embed", "model", "--backend", "none", code=2)
    zoo("push", "model", "organisation/name", code=2)
    zoo("export", "model", "--dtype", "int8", code=2)
    zoo("convert", "organisation/name", "--offline", code=4)


def test_models_and_exports(zoo: Zoo) -> None:
    zoo("info", "model")
    zoo("info", "model", "-v")
    zoo("info", "hub")
    zoo("verify", "model", "--no-parity")
    zoo("convert", "hub", "--dry-run")
    zoo("convert", "hub", "-o", "again")
    zoo("convert", "model", "--to", "hub", "-o", "back")
    zoo("push", "back", "organisation/name")
    zoo("export", "model", "--int8", "-o", "model-onnx")
    zoo("info", "model-onnx")
    zoo("verify", "model-onnx")
    zoo("push", "model-onnx", "organisation/name")
    zoo("bench", "model-onnx", "--iterations", "2", "--no-startup")
    zoo("bench", "model", "--backend", "cpu", "--iterations", "2", "--no-startup")
    labelled = ("--eval", "table.tsv", "--label", "label")
    zoo("eval", "model", "--task", "text-classification", *labelled, "--no-record")


def test_runs_and_corpora(zoo: Zoo) -> None:
    zoo("corpus", "build", "texts.txt", "-o", "corpus", "--tokenizer", "model")
    zoo("info", "corpus")
    zoo("verify", "corpus")
    for name, rate in (("one", 0.001), ("two", 0.002)):
        settings = options(optimizer={"learning_rate": rate})
        zoo("pretrain", "gpt", "--device", "cpu", *settings, "-o", name)
    zoo("info", "one")
    zoo("info", "one/model")
    zoo("verify", "one")
    assert "learning_rate: 0.001 and 0.002" in zoo("compare", "one", "two")


def test_training_on_labelled_data(zoo: Zoo) -> None:
    data = ("--train", "table.tsv", "--eval", "table.tsv")
    task = ("--task", "text-classification", *data, "--device", "cpu")
    zoo("finetune", "model", *task, "--max-steps", "2", "-o", "tuned")
    zoo("info", "tuned")
    zoo("finetune", "model", "--task", "text-classificatoin", "--train", "table.tsv", code=2)
    student = ("--teacher", "tuned/model", "--student", "tuned/model", "--recipe", "logits")
    scored = zoo("distill", *student, *task, "--max-steps", "2", "-o", "small")
    assert "retained" in scored
    zoo("distill", "--teacher", "tuned/model", "--student", "tuned/model", "--recipe", "x", code=2)


def test_looks_plugins_and_checks(zoo: Zoo) -> None:
    zoo("tokenize", "model", "a b c d e f g h i j")
    zoo("look", "model", "a b c")
    zoo("examples", "gpt", "--train", "texts.txt", "--tokenizer", "model", "--max-seq-len", "40")
    zoo("plugins", "new", "a-family-with-a-long-name", "--like", "task")
    zoo("plugins", "check", "loggers")
    zoo("plugins", "search")
    zoo("fetch", "organisation/name", "--offline", code=4)
    zoo("check", "accumulation", "bert", "--train", "no such file", code=4)


@pytest.mark.parametrize(
    "arguments",
    [("families",), ("models",), ("plugins",), ("info", "t5-small"), ("info", "nothing")],
)
def test_a_real_terminal(arguments: tuple[str, ...], tmp_path: Path) -> None:
    environment: dict[str, Any] = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "zoo", *arguments], stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # Linux: the terminal has no writer left
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert process.wait() in (0, 2, 4)
    lines = shown.decode().replace("\r", "")
    assert lines.strip() and longest(lines) == []
