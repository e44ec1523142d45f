"""Types of options that all commands share."""

import click
import pytest

from tests.cli.test_verbosity import commands
from zoo.cli import cli


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_no_option_takes_a_number_that_is_not_finite(text: str) -> None:
    tested = []
    for name, command in commands(cli):
        for parameter in command.params:
            if isinstance(parameter.type, click.types.FloatParamType):
                with pytest.raises(click.BadParameter):
                    parameter.type(text, parameter, None)
                tested.append((name, parameter.name))
    assert ("distill", "min_retention") in tested and ("run generate", "top_p") in tested
