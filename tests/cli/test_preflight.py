"""Checks of a command line before the command runs."""

import click
import pytest

from tests import warm
from tests.interfaces import commands
from zoo.errors import UsageError


@pytest.mark.parametrize("words", [["families"], ["export", "bert", "-o", "out"]])
def test_a_command_of_one_process_refuses_several(words: list[str]) -> None:
    (first,) = warm.at_once(words, WORLD_SIZE="2", RANK="0")
    (second,) = warm.at_once(words, WORLD_SIZE="2", RANK="1")
    assert first.returncode == second.returncode == 2
    assert first.stderr == (
        f"error: `zoo {words[0]}` runs in one process, and 2 were started; "
        "start it without torchrun\n"
    )
    assert (second.stdout, second.stderr) == ("", "")


def test_every_command_without_processes_of_its_own_refuses_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of training are the only ones that ``torchrun`` starts."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    refused = set()
    not_refused = set()
    for name, command in commands():
        if isinstance(command, click.Group) or command.callback is None:
            continue
        with click.Context(command, info_name=name):
            try:
                command.callback()
            except UsageError as error:
                assert error.what == f"`{name}` runs in one process, and 2 were started"
                refused.add(name)
            except TypeError:  # It goes on, and has no arguments.
                not_refused.add(name)
    assert not_refused == {"zoo pretrain", "zoo finetune", "zoo distill", "zoo completion"}
    assert {"zoo run embed", "zoo check resume", "zoo corpus build", "zoo serve"} <= refused
