"""Objectives, tasks and commands of plugins: conflicts of names, and broken ones."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import warm
from tests.plugins.laying import find_again
from zoo.errors import PluginError, UsageError
from zoo.objectives import OBJECTIVES
from zoo.objectives.base import Objective
from zoo.plugins.entry_point_objects import import_class

GREET = """
import click

@click.command()
def command():
    click.echo("hello")
"""
# distribution -> entry points of commands, source of the module, part of the message on use
PLUGINS = {
    "greets": ("greet", GREET, ""),
    "shadows": ("convert", GREET, "provides the command convert, which is built in"),
    "one": ("twice", GREET, "2 plugins provide the command twice"),
    "two": ("twice", GREET, "2 plugins provide the command twice"),
    "missing": ("lost", "import nowhere\n", "command lost: ModuleNotFoundError: No module named"),
    "exits": ("leave", "import os\nos._exit(3)\n", "command leave: SystemExit: 3"),
    "nameless": ("bare", "print('noise')\n", "command bare: AttributeError"),
    "number": ("count", "command = 7\n", "zoo_number:command is not a Command"),
    "raises": ("fail", GREET.replace('click.echo("hello")', "1 / 0"), "division by zero"),
}


def lay_out(folder: Path, name: str, kind: str, entry: str, source: str) -> None:
    """Write the distribution ``zoo-NAME`` 1.2 with a plugin and one object of a kind."""
    info = folder / f"zoo_{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: zoo-{name}\nVersion: 1.2\n")
    groups = f"[zoo.api1]\n{name} = zoo_{name}\n\n[zoo.api1.{kind}]\n"
    (info / "entry_points.txt").write_text(f"{groups}{entry} = zoo_{name}:command\n")
    (folder / f"zoo_{name}.py").write_text(f"open({str(folder / name)!r}, 'w').close()\n{source}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all plugins; a plugin that is imported writes a file with its name."""
    folder = tmp_path_factory.mktemp("named")
    for name, (entry, source, _) in PLUGINS.items():
        lay_out(folder, name, "commands", entry, source)
    return folder


def zoo(site: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Return exit code, output and messages."""
    home = {"PYTHONPATH": str(site), "ZOO_HOME": str(site / "home")}
    done = warm.zoo(*arguments, cwd=site, **home, **environment)
    return done.returncode, done.stdout, done.stderr


def test_help_imports_no_plugin_and_names_conflicts(site: Path) -> None:
    code, text, messages = zoo(site, "--help")
    assert code == 0 and not [name for name in PLUGINS if (site / name).exists()]
    listed = text.partition("Commands of plugins:")[2].partition("Examples")[0].split()
    assert [name for name in listed if name in {entry for entry, _, _ in PLUGINS.values()}] == [
        "leave",
        "greet",
        "lost",
        "bare",
        "count",
        "fail",
    ]
    lines = messages.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["warning"] * 2
    assert PLUGINS["shadows"][2] in lines[1] and "uninstall zoo-shadows" in lines[1]
    assert "one from zoo-one 1.2 and two from zoo-two 1.2; uninstall zoo-two" in lines[0]


def test_commands_run(site: Path) -> None:
    assert zoo(site, "greet") == (0, "hello\n", "")
    assert zoo(site, "convert", "--help")[1].startswith("Usage: zoo convert [OPTIONS] REF")
    assert zoo(site, "greet", ZOO_PLUGINS="bert")[0] == 2
    code, _, messages = zoo(site, "gret")
    assert code == 2 and "no command is called 'gret'; did you mean greet" in messages


@pytest.mark.parametrize("name", ["one", "missing", "exits", "nameless", "number", "raises"])
def test_broken_commands_are_one_line(site: Path, name: str) -> None:
    entry, _, message = PLUGINS[name]
    code, text, messages = zoo(site, entry)
    assert (code, text) == (5, "")
    (line,) = [line for line in messages.splitlines() if line != "noise"]
    assert message in line and f"zoo-{name} 1.2" in line
    assert "uninstall" in line and "`zoo plugins disable" in line


def test_the_list_names_conflicts_and_checks_what_is_named(site: Path) -> None:
    _, text, _ = zoo(site, "plugins", "--json")
    health = {plugin["name"]: plugin["health"] for plugin in json.loads(text)["plugins"]}
    assert PLUGINS["shadows"][2] in health["shadows"] and health["greets"] == "ok"
    assert health["one"] == health["two"] and PLUGINS["two"][2] in health["two"]
    code, text, _ = zoo(site, "plugins", "check", "number", "greets", "--json")
    checked = {plugin["name"]: plugin for plugin in json.loads(text)["plugins"]}
    assert code == 5 and PLUGINS["number"][2] in checked["number"]["health"]
    assert checked["greets"]["health"] == "ok"
    assert checked["greets"]["provides"] == {"commands": ["greet"]}


def test_a_shadowed_command_is_an_error_in_strict_mode(site: Path) -> None:
    assert zoo(site, "--help", ZOO_STRICT_PLUGINS="1")[0] == 5
    assert zoo(site, "greet", ZOO_STRICT_PLUGINS="1")[0] == 0


@pytest.mark.parametrize("other", ["bert", "greets"])
def test_a_borrowed_name_allows_no_command(tmp_path: Path, other: str) -> None:
    """The plugin is rejected in favour of a built-in one, or with that of another distribution."""
    lay_out(tmp_path, "bad", "commands", "evil", GREET)
    lay_out(tmp_path, "greets", "commands", "greet", GREET)
    points = tmp_path / "zoo_bad-1.2.dist-info" / "entry_points.txt"
    points.write_text(points.read_text().replace("bad = zoo_bad", f"{other} = zoo_bad", 1))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "plugins.yaml").write_text(f"enabled: [{other}]\n")
    for environment in ({}, {"ZOO_PLUGINS": other}):
        code, _, messages = zoo(tmp_path, "evil", **environment)
        assert code == 2 and "no command is called 'evil'" in messages
    assert not (tmp_path / "bad").exists()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the path of this process, for distributions."""
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path)
    find_again()
    yield tmp_path
    find_again()
    sys.modules.pop("zoo_odd", None)


OBJECTIVE = """
from zoo.objectives.masked import MaskedLanguageModelling

class command(MaskedLanguageModelling):
    name = "{}"
"""


@pytest.mark.parametrize(
    ("entry", "source", "message"),
    [
        ("masked-lm", OBJECTIVE.format("masked-lm"), "which is built in"),
        (
            "mine",
            OBJECTIVE.format("other"),
            "the name of zoo_odd:command is 'other', and that of its entry point 'mine'",
        ),
        ("mine", "command = dict\n", "zoo_odd:command is not a subclass of Objective"),
    ],
)
def test_objectives(path: Path, entry: str, source: str, message: str) -> None:
    lay_out(path, "odd", "objectives", entry, source)
    if entry in OBJECTIVES:
        with pytest.warns(UserWarning, match=message):
            kind = import_class("objectives", entry, OBJECTIVES, Objective)
        assert kind.__module__ == "zoo.objectives.masked"
        return
    with pytest.raises(PluginError, match=message):
        import_class("objectives", entry, OBJECTIVES, Objective)
    with pytest.raises(UsageError, match="did you mean masked-lm"):
        import_class("objectives", "maskd-lm", OBJECTIVES, Objective)


TASK = """
from zoo.families.tasks import TaskSpec

command = TaskSpec("{}", "Do something.", predict="zoo_odd:{}", train="zoo_odd:{}")

def __getattr__(name):
    if name not in ("Run", "Train"):
        raise AttributeError(name)
    from zoo.tasks.text_classification.train import REGRESSION
    from zoo.inference.task import Task

    return Task if name == "Run" else REGRESSION
"""


@pytest.mark.by_default("source2")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (TASK.format("mine", "Run", "Train"), ""),
        pytest.param(
            TASK.format("mine", "Nowhere", "Train"),
            "task mine: AttributeError: Nowhere",
            marks=pytest.mark.long,
        ),
        (TASK.format("mine", "Run", "Run"), "task mine: zoo_odd:Run is not a FineTuningTask"),
        pytest.param(
            TASK.format("yours", "Run", "Train"),
            "task mine: the name of zoo_odd:command is 'yours', and that of its entry point 'mine'",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "command = 7\n",
            "task mine: zoo_odd:command is neither a TaskSpec nor a Task",
            marks=pytest.mark.long,
        ),
    ],
)
def test_declared_tasks_are_checked(tmp_path: Path, source: str, message: str) -> None:
    lay_out(tmp_path, "odd", "tasks", "mine", source)
    home = {"PYTHONPATH": str(tmp_path), "ZOO_HOME": str(tmp_path / "home")}
    problems = warm.check_plugin("odd", tmp_path, **home)
    assert len(problems) == (1 if message else 0), problems
    assert [problem for problem in problems if message not in problem] == []
