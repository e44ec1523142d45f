"""Checks of a command line before the command runs."""

import pytest

from tests import warm


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
