"""``--verbose`` and ``--quiet`` of every command."""

import logging
import os
import subprocess
import sys

import click
import pytest

from tests.interfaces import commands
from zoo.cli import output
from zoo.io.progress import shows_progress


def test_every_command_has_both_options() -> None:
    for name, command in commands():
        if isinstance(command, click.Group) and not command.invoke_without_command:
            continue  # it only holds others
        options = {option for parameter in command.params for option in parameter.opts}
        json = set() if name == "zoo completion" else {"--json"}  # it prints a script
        assert {*json, "-v", "--verbose", "-q", "--quiet"} <= options, name


def zoo(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "zoo", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


def test_both_at_once_are_refused() -> None:
    done = zoo("models", "-v", "-q")
    assert done.returncode == 2
    assert "--verbose and --quiet exclude each other" in done.stderr


def test_quiet_hides_notes_and_keeps_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    output.prepare()
    try:
        output.set_verbosity(-1)
        logging.getLogger("zoo").info("a note")
        logging.getLogger("zoo").warning("a warning")
        output.fail("an error", "", 2, ())
        assert capsys.readouterr().err == "a warning\nerror: an error\n"
    finally:
        output.set_verbosity(0)


def test_verbose_shows_records_of_other_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    output.prepare()
    library = logging.getLogger("some_library")
    try:
        library.info("hidden")
        output.set_verbosity(1)
        library.info("shown")
        logging.getLogger("zoo").info("a note")
        assert capsys.readouterr().err == "shown\na note\n"
    finally:
        output.set_verbosity(0)
    library.info("hidden again")
    assert capsys.readouterr().err == ""


def test_quiet_hides_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    try:
        output.set_verbosity(-1)
        assert not shows_progress()
        output.set_verbosity(0)
        assert shows_progress()
    finally:
        output.set_verbosity(0)
