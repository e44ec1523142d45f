"""Several files after one option."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.in_process import exit_code
from zoo.cli import cli
from zoo.cli.file_lists import repeat_file_options


def command_named(name: str) -> click.Command:
    """Return a command of the program."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


@pytest.mark.parametrize(
    ("line", "repeated"),
    [
        ("bert --train a b -o out", "bert --train a --train b -o out"),
        ("bert -o out --train a b c", "bert -o out --train a --train b --train c"),
        ("bert --train a --eval b c", "bert --train a --eval b --eval c"),
        ("bert --train a -q b", "bert --train a -q b"),  # b is too much, as ever
        ("bert --train=a b", "bert --train=a b"),
        ("--train a bert", "--train a bert"),  # the family comes last
        ("bert --set a=1 b", "bert --set a=1 b"),  # not files
        ("--train a config.yaml", "--train a config.yaml"),
        ("bert --train a -- b", "bert --train a -- b"),
        ("bert --unknown a b", "bert --unknown a b"),
    ],
)
def test_files_get_the_option(line: str, repeated: str) -> None:
    assert repeat_file_options(command_named("pretrain"), line.split()) == repeated.split()


def test_a_file_that_may_be_a_positional_argument_is_left() -> None:
    line = ["a.txt", "--eval", "b.txt", "c.txt"]
    corpus = command_named("corpus")
    assert isinstance(corpus, click.Group)
    build = corpus.get_command(click.Context(corpus), "build")
    assert build is not None
    assert repeat_file_options(build, line) == line


@pytest.mark.parametrize("command", ["pretrain", "finetune", "examples"])
def test_too_many_arguments_after_a_file_show_what_to_write(command: str, capfd: Any) -> None:
    assert exit_code([command, "--train", "a.txt", "b.txt", "bert"]) == 2
    message = capfd.readouterr().err
    assert "there are too many arguments; write --train a.txt --train b.txt" in message


@pytest.mark.parametrize("command", ["finetune", "eval", "pretrain"])
def test_a_file_in_place_of_the_model_shows_what_to_write(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("a text\n")
    flag = "--eval" if command == "eval" else "--train"
    assert exit_code([command, flag, "a.txt", "b.txt"]) == 2
    assert f"write {flag} a.txt {flag} b.txt" in capfd.readouterr().err


def test_a_recipe_that_is_not_yaml_names_the_options(capfd: Any) -> None:
    assert exit_code(["distill", "minilm"]) == 2
    assert "minilm is not a YAML file; give a model as --teacher minilm" in capfd.readouterr().err


def test_all_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.tsv").write_text(f"text\tlabel\nthe text {name}\tyes\n")
    files = ("a.tsv", "b.tsv", "missing.tsv")
    arguments = ("finetune", "bert", "--task", "text-classification", "--train", *files)
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code and "missing.tsv does not exist" in str(result.exception)
