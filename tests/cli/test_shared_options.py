"""One name for one thing in all commands, and the table of the documentation."""

from collections import defaultdict

import click
import pytest
from click.testing import CliRunner

from tests.interfaces import ROOT, commands
from tests.warm import zoo
from tools.shared_options import PAGE, written
from zoo.cli import COMMANDS, GROUPS, cli
from zoo.cli.options import SHARED
from zoo.plugins.tasks import built_in_tasks

# things that have one name, as in transformers where it has them -> names that they had or could
# have; no option with a value has one of these
THINGS = {
    "--train": {"--data", "--train-data", "--train-file", "--training-data"},
    "--eval": {"--eval-data", "--eval-file", "--dev", "--validation-file", "--test"},
    "--text": {"--text-field", "--text-column", "--column", "--key"},
    "--pair": {"--text-pair", "--pair-column"},
    "--label": {"--label-column", "--target"},
    "--max-seq-len": {"--max-tokens", "--max-length", "--max-seq-length", "--length"},
    "--batch-size": {"--batch", "--rows", "--per-device-train-batch-size"},
    "--output": {"--out", "--output-dir", "--destination", "--to-file"},
    "--figures": {"--figure", "--plot", "--svg"},
    "--learning-rate": {"--lr"},
    "--input": {"--source", "--file", "--input-file"},
}


def options() -> list[tuple[str, click.Option]]:
    """Return the options of all commands."""
    return [
        (name, option)
        for name, command in commands()
        for option in command.params
        if isinstance(option, click.Option)
    ]


def test_no_command_has_another_name_for_a_thing() -> None:
    others = {other for names in THINGS.values() for other in names}
    with_values = [(name, option) for name, option in options() if not option.is_flag]
    assert [(name, flag) for name, o in with_values for flag in o.opts if flag in others] == []


def test_an_option_is_the_same_argument_in_all_commands() -> None:
    """A name on the command line is one name of an argument, and the other way round."""
    arguments, flags = defaultdict(set), defaultdict(set)
    for _, option in options():
        # Tasks have further names of these, such as --queries and --query-text.
        named = [flag for flag in ("--input", "--text") if flag in option.opts]
        flag = named[0] if named else max(option.opts, key=len)
        if flag != "--choices":  # of `zoo run choose`, next to --choice
            arguments[flag].add(option.name)
            flags[option.name].add(flag)
    flags.pop("choices")
    # the class of tasks names it; `zoo run --prompt` is the name of a prompt
    assert {flag: names for flag, names in arguments.items() if len(names) > 1} == {}
    assert {name: found for name, found in flags.items() if len(found) > 1} == {}


def test_shared_options_are_those_of_the_table() -> None:
    """Options of several commands are declared once, with their name, and a value or none."""
    of_tasks = set()  # other names of --input and --text
    for spec in built_in_tasks().values():
        of_tasks |= {spec.input_flag, spec.text_flag}
    different = [
        (name, option.opts)
        for name, option in options()
        if (shared := SHARED.get(option.name or "")) is not None
        and (
            set(shared.flags) != {*option.opts} - of_tasks or bool(shared.metavar) == option.is_flag
        )
    ]
    assert different == []


@pytest.mark.parametrize("words", ["convert a-model", "export a-model --onnx", "plugins new name"])
def test_no_directory_is_called_like_standard_output(words: str) -> None:
    done = zoo(*words.split(), "-o", "-")
    assert done.returncode == 2 and "the output is a directory" in done.stderr
    assert done.stderr.count("\n") == 1


def test_commands_are_in_the_groups_of_their_folders() -> None:
    """The headings of `zoo --help` are the folders of zoo/cli, and hold all of their commands."""
    text = CliRunner().invoke(cli, ["--help"]).stdout
    for heading, group in GROUPS.items():
        section = text.partition(f"\n{heading}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == list(group)
        modules = {module for module, _ in group.values()}
        assert {module.rpartition(".")[0] for module in modules} == {f"zoo.cli.{heading.lower()}"}
    files = {path.stem.replace("_", "-") for path in (ROOT / "zoo" / "cli").glob("*/*.py")}
    assert sorted(COMMANDS.keys() - files) == []


def test_help_is_at_most_80_columns_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    long = []
    for name, command in commands():
        context = click.Context(command, info_name=name, parent=click.Context(cli))
        long += [line for line in command.get_help(context).splitlines() if len(line) > 80]
    assert long == []


def test_a_run_does_not_train_on_standard_input() -> None:
    done = zoo("pretrain", "bert", "--train", "-", stdin="A cat sat.")
    assert done.returncode == 2 and "reads its data again when it is resumed" in done.stderr


def test_the_table_is_that_of_the_options() -> None:
    text = PAGE.read_text("utf-8")
    assert written(text) == text, "run `python -m tools.shared_options`"
