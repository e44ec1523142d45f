"""What commands print fits a pseudo-terminal of 80 columns; longer paths are the one exception.

JSON, which programs read, stays on one line: ``--json``, and the results of ``zoo run``.
"""

import ast
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from tests.exporting.conftest import with_tokenizer
from tests.hub.hub_server import Hub
from tests.in_process import exit_code
from tests.once import written_once
from tests.training.runs import options
from zoo.cli import cli

COLUMNS = 80
Zoo = Callable[..., str]
TEXTS = "".join(f"a b c d e f g h i j {word}\n\n" for word in "abcdefghij" * 30)
TABLE = "text\tlabel\n" + "".join(
    f"{'ab'[k % 2]} c d\t{('red', 'blue')[k % 2]}\n" for k in range(40)
)
PAIRS = "text\tpair\n" + "".join(f"{a} {b} c d\t{b} {a} e\n" for a in "abc" for b in "fghij")
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # movements of the cursor and colours
SCRIPT = "completion"  # prints a program


def longest(text: str) -> list[str]:
    """Return the lines that are too long, except for words that do not fit in any line."""
    lines = [line for line in re.split("[\r\n]+", CODES.sub("", text)) if len(line) > COLUMNS]
    return [
        line
        for line in lines
        if max(map(len, line.split())) <= COLUMNS - 4 and not line.startswith("{")
    ]


@contextmanager
def terminal() -> Iterator[Callable[[], str]]:
    """Make standard output and error a terminal; yield a function that ends it and returns both."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    shown = bytearray()

    def read() -> None:
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:  # Linux: the terminal has no writer left
                return
            if not part:
                return
            shown.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    streams = sys.stdout, sys.stderr
    for number, _ in kept:
        os.dup2(slave, number)
    os.close(slave)
    sys.stdout, sys.stderr = (
        os.fdopen(os.dup(number), "w", buffering=1, encoding="utf-8") for number, _ in kept
    )

    def end() -> str:
        for stream in (sys.stdout, sys.stderr):
            if stream not in streams:
                stream.close()
        sys.stdout, sys.stderr = streams
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
        kept.clear()
        reader.join()
        os.close(master)
        return shown.decode()

    try:
        yield end
    finally:
        if kept:
            end()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model, its Hub layout, texts, and a table."""
    made = written_once("width", lambda folder: with_tokenizer(folder, "sequence-classification"))
    encoder = written_once("width-encoder", lambda folder: with_tokenizer(folder, "none"))
    for name in ("model", "hub"):
        (tmp_path / name).symlink_to(made / name)
    (tmp_path / "encoder").symlink_to(encoder / "model")
    (tmp_path / "texts.txt").write_text(TEXTS)
    (tmp_path / "table.tsv").write_text(TABLE)
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def zoo(place: Path) -> Zoo:
    """Run a command; return its output, errors included, whose lines are not too long."""

    def run(*arguments: str, code: int = 0) -> str:
        with terminal() as end:
            ended = exit_code(list(arguments))
            shown = end()
        assert ended == code, shown
        assert longest(shown) == [], arguments
        return shown.replace("\r\n", "\n")

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
    zoo("export", "model", "--dtype", "bfloat16", code=2)
    zoo("convert", "organisation/name", "--offline", code=4)


# These commands print with the functions that the other tests of this module check.
@pytest.mark.long
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
    zoo("corpus", "inspect", "texts.txt")
    assert "left after" in zoo("corpus", "clean", "texts.txt", "-o", "clean", "--rule", "c4")
    zoo("corpus", "build", "texts.txt", "-o", "corpus", "--tokenizer", "model")
    zoo("info", "corpus")
    zoo("verify", "corpus")
    zoo("corpus", "inspect", "texts.txt")
    zoo("corpus", "clean", "texts.txt", "--deduplicate", "lines", "-o", "cleaned")
    for name, rate in (("one", 0.001), ("two", 0.002)):
        settings = options(optimizer={"learning_rate": rate})
        zoo("pretrain", "gpt", "--device", "cpu", *settings, "-o", name)
    zoo("info", "one")
    zoo("info", "one/model")
    zoo("verify", "one")
    assert "learning_rate: 0.001 and 0.002" in zoo("compare", "one", "two")


@pytest.mark.long
def test_training_on_labelled_data(zoo: Zoo) -> None:
    data = ("--train", "table.tsv", "--eval", "table.tsv")
    task = ("--task", "text-classification", *data, "--device", "cpu")
    zoo("finetune", "model", *task, "--max-steps", "2", "-o", "tuned")
    zoo("info", "tuned")
    zoo("loss-surface", "tuned", "--intervals", "2", "--device", "cpu", "-o", "curve.svg")
    zoo("finetune", "model", "--task", "text-classificatoin", "--train", "table.tsv", code=2)
    student = ("--teacher", "tuned/model", "--student", "tuned/model", "--recipe", "logits")
    scored = zoo("distill", *student, *task, "--max-steps", "2", "-o", "small")
    assert "retained" in scored
    zoo("distill", "--teacher", "tuned/model", "--student", "tuned/model", "--recipe", "x", code=2)


# These commands print with the functions that the other tests of this module check.
@pytest.mark.long
def test_looks_plugins_and_checks(zoo: Zoo) -> None:
    zoo("tokenize", "model", "a b c d e f g h i j")
    zoo("look", "model", "a b c")
    data = ("--train", "table.tsv", "--eval", "table.tsv")
    zoo("probe", "model", "--task", "text-classification", *data, "--seeds", "2")
    zoo("examples", "gpt", "--train", "texts.txt", "--tokenizer", "model", "--max-seq-len", "40")
    zoo("plugins", "new", "a-family-with-a-long-name", "--like", "task")
    zoo("plugins", "check", "loggers")
    zoo("plugins", "search")
    zoo("fetch", "organisation/name", "--offline", code=4)
    zoo("check", "accumulation", "bert", "--train", "no such file", code=4)


@pytest.mark.long
def test_what_the_hub_has(zoo: Zoo, place: Path, hub: Hub) -> None:
    files = {path.name: path.read_bytes() for path in (place / "hub").iterdir()}
    files.pop(".zoo.json", None)
    name = "an-organisation-with-a-long-name/a-model-with-a-name-that-is-long-as-well"
    hub.add(name, files)
    shown = zoo("fetch", name)
    assert "model.safetensors" in shown
    zoo("info", name)
    zoo("convert", name)
    zoo("verify", name, "--no-parity")
    zoo("fetch", "organisation/name", code=4)


@pytest.mark.long
def test_a_check_of_accumulation(zoo: Zoo) -> None:
    settings = options(max_steps=4, save_steps=2)
    assert "gradients" in zoo("check", "accumulation", "gpt", *settings)


@pytest.mark.long  # starts three processes
def test_a_check_of_resuming(zoo: Zoo) -> None:
    settings = options(max_steps=4, save_steps=2)
    assert "exact" in zoo("check", "resume", "gpt", "--device", "cpu", "--kills", "1", *settings)


@pytest.mark.long
def test_adapters(zoo: Zoo) -> None:
    data = ("--train", "table.tsv", "--eval", "table.tsv", "--device", "cpu", "--max-steps", "2")
    task = ("--task", "text-classification", *data)
    zoo("finetune", "model", *task, "--adapter", "lora", "-o", "lora")
    zoo("adapter", "list", "lora")
    zoo("adapter", "info", "lora/model")
    zoo("adapter", "merge", "lora/model", "-o", "merged")
    zoo("adapter", "extract", "model", "merged", "-o", "extracted")


def test_results_and_tables(zoo: Zoo) -> None:
    assert "in all" in zoo("run", "features", "model", "a b")
    zoo("run", "classify", "model", "a b")
    zoo("run", "classify", "model", "--input", "table.tsv", "-o", "results.csv")
    zoo("run", "embed", "model", "a", code=2)
    zoo("retokenize", "model", "--tokenizer", "model", "-o", "again")
    assert "in all" in zoo("run", "embed", "encoder", "a b")
    mining = ("--input", "pairs.tsv", "-o", "mined.jsonl", "--num-negatives", "1")
    zoo("mine-negatives", "encoder", *mining)
    assert "no key" in zoo("serve", "encoder", "--host", "0.0.0.0", code=2)


def test_plugins_on_and_off(zoo: Zoo) -> None:
    zoo("plugins", "list")
    zoo("plugins", "disable", "elmo")
    zoo("plugins", "enable", "elmo")
    assert "does not exist" in zoo("plugins", "install", "./no such directory", code=2)
    zoo("plugins", "uninstall", "no-such-distribution", code=2)


def leaves(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the names of all commands; the tasks of ``zoo run`` are one."""
    context = click.Context(group)
    for name in group.list_commands(context):
        child = group.get_command(context, name)
        if isinstance(child, click.Group) and name != "run":
            yield from leaves(child, *path, name)
        else:
            yield (*path, name)


def test_each_command_is_run_here() -> None:
    calls = [
        tuple(part.value for part in node.args if isinstance(part, ast.Constant))
        for node in ast.walk(ast.parse(Path(__file__).read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "zoo"
    ]
    run = {call[:length] for call in calls for length in (1, 2)}
    assert [path for path in leaves(cli) if path not in run and path != (SCRIPT,)] == []


@pytest.mark.parametrize("path", [*leaves(cli), *(("run", task) for task in ("embed", "prompt"))])
def test_help(zoo: Zoo, path: tuple[str, ...]) -> None:
    assert "Options:" in zoo(*path, "--help")
