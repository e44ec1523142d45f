"""Words that are not commands or options: what is suggested exists, and help shows it."""

import re
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.in_process import exit_code
from zoo.cli import cli
from zoo.cli.suggestions import COMMAND_WORDS, PROGRAM_OPTIONS
from zoo.cli.task_options import declared_options
from zoo.plugins.tasks import find_task


@pytest.mark.parametrize("remedy", sorted({*COMMAND_WORDS.values(), *PROGRAM_OPTIONS.values()}))
def test_a_suggested_command_exists_and_has_the_options(remedy: str) -> None:
    for line in re.findall(r"`zoo ([^`]*)`", remedy):
        words = line.split()
        command: click.Command = cli
        while isinstance(command, click.Group) and words and words[0].islower():
            child = command.get_command(click.Context(command), words[0])
            if words[0].startswith("-"):
                break
            assert child is not None, line
            command = child
            words = words[1:]
        flags = {flag for parameter in command.params for flag in parameter.opts} | {"--help"}
        placeholder = "COMMAND" in words or "TASK" in words  # options of any command
        for word in words:
            assert placeholder or not word.startswith("-") or word in flags, line


@pytest.mark.parametrize("word", ["help", "version", "list", "quantize", "download", "Train"])
def test_a_word_names_the_command(word: str, capfd: Any) -> None:
    assert exit_code([word]) == 2
    message = capfd.readouterr().err
    assert f"no command is called {word!r}; use {COMMAND_WORDS[word.lower()]}" in message


@pytest.mark.parametrize("word", ["search", "embed", "classify"])
def test_a_task_names_its_command(word: str, capfd: Any) -> None:
    assert exit_code([word]) == 2
    assert f"did you mean zoo run {word}?" in capfd.readouterr().err


@pytest.mark.parametrize("option", PROGRAM_OPTIONS)
def test_an_option_without_a_command_names_the_command(option: str, capfd: Any) -> None:
    assert exit_code([option, "value"]) == 2
    assert f"use {PROGRAM_OPTIONS[option]}" in capfd.readouterr().err


def test_options_of_other_programs_name_ours(capfd: Any) -> None:
    names = {
        "export m --quantize": "--int8",
        "run embed m -i f": "--input",
        "mine-negatives m --train f": "--input",
        "finetune m --data f": "--train",
        "eval m --input f": "--eval",
    }
    for command, option in names.items():
        assert exit_code(command.split()) == 2
        assert f"did you mean {option}?" in capfd.readouterr().err


def test_hyphens_do_not_make_options_alike(capfd: Any) -> None:
    assert exit_code(["corpus", "build", "a.txt", "--train", "b.txt"]) == 2
    assert "no option is called --train (see" in capfd.readouterr().err


def help_text(*arguments: str) -> str:
    """Return the help of a command."""
    result = CliRunner().invoke(cli, [*arguments, "--help"])
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("task", ["question-answering", "zero-shot", "perplexity"])
def test_help_of_eval_begins_with_the_options_of_the_task(task: str) -> None:
    text = help_text("eval", "--task", task)
    own_section, _, common_section = text.partition("\nOptions:\n")
    flags = [option.flags for option in declared_options("evaluate", [find_task(task, "evaluate")])]
    assert f"Options of {task}:" in own_section
    assert flags
    assert [flag for flag in flags if f"  {flag} " not in own_section] == []
    assert [flag for flag in flags if f"  {flag} " in common_section] == []
    assert "--backend" in common_section


@pytest.mark.parametrize("command", ["eval", "finetune"])
def test_help_without_a_task_has_the_common_options(command: str) -> None:
    text = help_text(command)
    assert "--template" not in text and "--text" in text
    assert "--template" in help_text(command, "--task", "prompt")
