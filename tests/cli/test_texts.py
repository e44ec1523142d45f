"""A single text that is the name of a file is an error that shows how to read the file."""

import shlex
from pathlib import Path

import pytest

from tests import warm
from zoo.plugins.tasks import commands

MODEL = "bert-base-uncased"  # known, and never read: the text is judged before


def outcome(folder: Path, *arguments: str) -> tuple[int, str]:
    """Return the exit code and the messages of a command."""
    done = warm.zoo(*arguments, cwd=folder, ZOO_HOME=str(folder / "home"), HF_HUB_OFFLINE="1")
    return done.returncode, done.stderr


@pytest.mark.by_default("classify")
@pytest.mark.parametrize("command", sorted(commands()))
def test_every_task(tmp_path: Path, command: str) -> None:
    (tmp_path / "my reviews.csv").write_text("text\nfine\n")
    code, message = outcome(tmp_path, "run", command, MODEL, "my reviews.csv")
    assert code == 2
    assert "error: the text 'my reviews.csv' is the name of a file; --" in message
    assert "'my reviews.csv' reads it; --text-is-text takes the name as the text" in message


@pytest.mark.by_default("rerank MODEL a b --query a.txt")
@pytest.mark.parametrize(
    "options",
    ["rerank MODEL a b --query a.txt", "score MODEL a b --context a.txt"],
)
def test_texts_of_options(tmp_path: Path, options: str) -> None:
    (tmp_path / "a.txt").write_text("a text\n")
    arguments = ["run", *options.replace("MODEL", MODEL).split()]
    code, message = outcome(tmp_path, *arguments)
    assert code == 2
    assert """the text 'a.txt' is the name of a file; "$(cat a.txt)" reads it""" in message
    code, message = outcome(tmp_path, *arguments, "--text-is-text")
    assert code == 4, message  # The model is not on this machine.


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (("look", MODEL, "a.txt"), '"$(cat a.txt)" reads it'),
        (("tokenize", MODEL, "a.txt"), "`- < a.txt` reads it"),
    ],
)
def test_other_commands(tmp_path: Path, command: tuple[str, ...], remedy: str) -> None:
    (tmp_path / "a.txt").write_text("a text\n")
    code, message = outcome(tmp_path, *command)
    assert code == 2 and remedy in message, message
    assert "is the name of a file" in message


@pytest.mark.by_default("run embed MODEL a.txt 'a text'", "run embed MODEL folder")
@pytest.mark.parametrize(
    "arguments",
    [
        "run embed MODEL a.txt --text-is-text",
        "run embed MODEL a.txt 'a text'",
        "run embed MODEL 'no file'",
        "run embed MODEL folder",
        "look MODEL a.txt --text-is-text",
        "tokenize MODEL a.txt --text-is-text",
    ],
)
def test_other_texts_are_taken(tmp_path: Path, arguments: str) -> None:
    """These commands go on, and look for the model."""
    (tmp_path / "a.txt").write_text("a text\n")
    (tmp_path / "folder").mkdir()
    code, message = outcome(tmp_path, *shlex.split(arguments.replace("MODEL", MODEL)))
    assert code == 4, "the model is not on this machine"
    assert "is the name of a file" not in message
