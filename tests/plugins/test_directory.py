"""The directory of known plugins lists the examples, and messages and ``search`` use it."""

import json
import shlex
import tomllib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.checkpoints import Make, hub_checkpoint
from zoo.cli import cli
from zoo.conversion.inspect import find_config
from zoo.errors import UsageError
from zoo.hub.reference import resolve
from zoo.hub.source import locate_or_download
from zoo.plugins.directory import KnownPlugin, known_plugins, plugin_of_model_type, search

__all__ = ["hub_checkpoint"]
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "plugins"


def test_it_has_every_example() -> None:
    examples = {f"examples/plugins/{path.name}" for path in EXAMPLES.iterdir()}
    assert examples <= {plugin.source for plugin in known_plugins().values()}


@pytest.mark.parametrize("name", known_plugins())
def test_an_entry_is_what_the_example_declares(name: str) -> None:
    plugin = known_plugins()[name]
    project = tomllib.loads((ROOT / plugin.source / "pyproject.toml").read_text("utf-8"))["project"]
    assert plugin.distribution == project["name"]
    assert name in project["entry-points"]["zoo.api1"]
    module = (ROOT / plugin.source / f"zoo_{name}" / "__init__.py").read_text("utf-8")
    assert [kind for kind in plugin.model_types if f'"{kind}"' not in module] == []


def test_a_command_installs_what_is_in_the_source() -> None:
    command = known_plugins()["rembert"].install_command
    assert shlex.split(command) == ["zoo", "plugins", "install", str(EXAMPLES / "rembert")]
    elsewhere = KnownPlugin(distribution="a", summary="", source="git+https://example.org/a b")
    assert shlex.split(elsewhere.install_command)[-1] == "git+https://example.org/a b"
    absent = KnownPlugin(distribution="a", summary="", source="examples/plugins/absent")
    assert absent.remedy == "`zoo plugins install ./examples/plugins/absent` in the source of zoo"


def test_words_are_parts_of_names_and_summaries() -> None:
    assert [*search("RemBERT")] == ["rembert"]
    assert [*search("logger")] == ["toolbox"]
    assert [*search()] == [*known_plugins()]
    assert search("nothing like it") == {}


def test_the_command_lists_what_it_finds() -> None:
    done = CliRunner().invoke(cli, ["plugins", "search", "tool", "--json"])
    (found,) = json.loads(done.stdout)["plugins"]
    assert found["name"] == "toolbox" and found["model_types"] == []
    done = CliRunner().invoke(cli, ["plugins", "search"])
    assert [name for name in known_plugins() if name not in done.stdout] == []
    with pytest.raises(UsageError, match="no plugin of the directory matches 'zzz'"):
        CliRunner().invoke(cli, ["plugins", "search", "zzz"], catch_exceptions=False)


def test_an_unknown_model_type_names_the_plugin(hub_checkpoint: Make) -> None:
    source = hub_checkpoint("BertModel")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "model_type": "rembert"}))
    with pytest.raises(UsageError) as error:
        find_config(locate_or_download(resolve(str(source))))
    assert "the plugin zoo-rembert has it: `zoo plugins install " in str(error.value)
    assert plugin_of_model_type("bert") is None


def test_an_entry_has_no_other_keys() -> None:
    entry = {"distribution": "a", "summary": "b", "source": "c", "url": "d"}
    with pytest.raises(msgspec.ValidationError, match="url"):
        msgspec.convert(entry, KnownPlugin)
