"""Types of options that all commands share."""

import click
import pytest

from tests.interfaces import commands
from tests.warm import zoo
from zoo.cli import cli


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


@pytest.mark.by_default("arguments0", "arguments6")
@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["run", "features", "a-model", "a", "--layers", "0", "--layers", "1"], "--layers"),
        (["run", "embed", "m", "--text", "a", "--text=b"], "--text"),
        (["corpus", "build", "a", "--text", "a", "--text", "b"], "--text"),
        (["corpus", "build", "a", "-o", "a", "--output", "b"], "--output"),
        (["corpus", "build", "a", "--lowercase", "--cased"], "--lowercase or --cased"),
        (["plugins", "new", "a", "-o", "a", "-ob"], "--output"),
        (["check", "resume", "bert", "--size", "a", "--size", "b"], "--size"),
        (["eval", "a-model", "--label", "a", "--label", "b"], "--label"),
    ],
)
def test_an_option_of_one_value_is_refused_twice(arguments: list[str], option: str) -> None:
    done = zoo(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: {option} is given twice; give it once")
    assert done.stderr.count("\n") == 1


def test_each_option_of_one_value_is_refused_twice() -> None:
    taken = []
    for name, command in commands():
        for option in command.params:
            if not isinstance(option, click.Option) or option.multiple or option.is_flag:
                continue
            values = [option.opts[0], "1", option.opts[0], "2"]
            context = click.Context(cli, info_name="zoo")
            try:
                cli.resolve_command(context, [*name.split()[1:], *values])
                taken.append(f"{name} {option.opts[0]}")
            except click.UsageError as error:
                assert "is given twice" in error.message
    assert taken == []


def test_options_of_several_values_and_flags_may_be_repeated() -> None:
    context = click.Context(cli, info_name="zoo")
    several = ["--train", "a", "--train", "b", "-v", "-v", "--set", "a=1", "--set", "b=2"]
    name, command, rest = cli.resolve_command(context, ["pretrain", "bert", *several])
    assert name == "pretrain" and command is not None and rest == ["bert", *several]


def test_a_setting_is_refused_twice() -> None:
    done = zoo("pretrain", "bert", "--set", "seed=1", "--set", "seed=2")
    assert done.returncode == 2
    assert done.stderr.startswith("error: --set seed is given twice")


@pytest.mark.parametrize("text", ["1_000", "\uff11\uff12", " 7", "0x7"])
def test_every_number_is_written_in_ascii_decimals(text: str) -> None:
    taken, tested = [], 0
    for name, command in commands():
        for parameter in command.params:
            if isinstance(parameter.type, click.types.FloatParamType | click.types.IntParamType):
                tested += 1
                try:
                    taken.append((name, parameter.name, parameter.type(text, parameter, None)))
                except click.BadParameter:
                    continue
    assert taken == []
    assert tested > 50
