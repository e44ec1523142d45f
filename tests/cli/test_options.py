"""Types of options that all commands share."""

import click
import pytest

from tests.interfaces import commands


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_no_option_takes_a_number_that_is_not_finite(text: str) -> None:
    tested = []
    for name, command in commands():
        for parameter in command.params:
            if isinstance(parameter.type, click.types.FloatParamType):
                with pytest.raises(click.BadParameter):
                    parameter.type(text, parameter, None)
                tested.append((name, parameter.name))
    assert ("zoo distill", "min_retention") in tested and ("zoo run generate", "top_p") in tested
