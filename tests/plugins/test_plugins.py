"""Discovery of third-party plugins: valid, broken, and conflicting ones.

Each test lays out distributions as pip does, and starts the command with them on the path.
"""

import json
import tomllib
from pathlib import Path

import pytest

from tests.plugins.laying import find_again
from tests.plugins.making import HEALTHY, HOOKIMPL, distribution, zoo
from zoo.plugins import discovery, hookspecs
from zoo.plugins.install import plugins_of
from zoo.plugins.registry import HOOKS

ROOT = Path(__file__).parents[2]
PROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("examples/plugins/*/pyproject.toml"))]


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_projects_declare_plugins_in_one_group(path: Path) -> None:
    groups = tomllib.loads(path.read_text("utf-8"))["project"]["entry-points"]
    assert "zoo.api1" in groups
    assert [group for group in groups if group.partition(".api1")[0] != "zoo"] == []


def test_third_party_family_is_listed(tmp_path: Path) -> None:
    distribution(tmp_path, "zoo-mine", "mine", "zoo_mine", HEALTHY.format(name="mine"))
    families = json.loads(zoo(tmp_path, "families", "--json").stdout)["families"]
    assert families["mine"]["heads"] == families["bert"]["heads"]
    plugins = json.loads(zoo(tmp_path, "plugins", "--json").stdout)["plugins"]
    mine = next(plugin for plugin in plugins if plugin["name"] == "mine")
    assert mine == {
        "name": "mine",
        "distribution": "zoo-mine",
        "version": "1.2",
        "api": 1,
        "module": "zoo_mine",
        "location": str(tmp_path / "zoo_mine.py"),
        "record_sha256": None,
        "provides": {"families": ["mine"]},
        "health": "ok",
    }
    built_in = next(plugin for plugin in plugins if plugin["name"] == "bert")
    assert len(built_in["record_sha256"]) == 64
    assert built_in["location"] == str(Path(__file__).parents[2] / "plugins" / "zoo_bert")


def test_a_source_tree_has_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder of metadata does not tell it."""
    distribution(tmp_path, "zoo-mine", "mine", "zoo_mine", HEALTHY.format(name="mine"))
    info = (tmp_path / "zoo_mine-1.2.dist-info").rename(tmp_path / "Zoo_Mine.egg-info")
    (info / "METADATA").rename(info / "PKG-INFO")
    monkeypatch.syspath_prepend(tmp_path)
    find_again()
    try:
        assert [p.origin for p in discovery.all_entry_points()["mine"]] == ["zoo-mine 1.2"]
    finally:
        find_again()


def test_what_was_installed_since_the_start_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    find_again()
    try:
        assert "mine" not in discovery.all_entry_points()
        distribution(tmp_path, "zoo-mine", "mine", "zoo_mine", HEALTHY.format(name="mine"))
        assert [plugin.name for plugin in plugins_of(["zoo-mine"])] == ["mine"]
    finally:
        find_again()


def test_disabled_plugins_are_not_imported(tmp_path: Path) -> None:
    distribution(tmp_path, "zoo-sad", "sad", "zoo_sad", "1 / 0\n")
    environment = {"ZOO_HOME": str(tmp_path / "home")}
    for name in ("sad", "t5"):
        assert zoo(tmp_path, "plugins", "disable", name, **environment).returncode == 0
    done = zoo(tmp_path, "families", "--json", **environment)
    assert done.stderr == "" and "t5" not in json.loads(done.stdout)["families"]
    plugins = json.loads(zoo(tmp_path, "plugins", "--json", **environment).stdout)["plugins"]
    disabled = {plugin["name"] for plugin in plugins if plugin["health"] == "disabled"}
    assert disabled == {"sad", "t5"}
    used = zoo(tmp_path, "info", "t5-small", **environment)
    assert used.returncode == 2 and "`zoo plugins enable t5`" in used.stderr
    assert zoo(tmp_path, "plugins", "enable", "t5", **environment).returncode == 0
    assert zoo(tmp_path, "info", "t5-small", **environment).returncode == 0


def test_list_of_enabled_plugins(tmp_path: Path) -> None:
    """Plugins that are not in it are not loaded, and formats always are."""
    file = tmp_path / "home" / "plugins.yaml"
    file.parent.mkdir()
    file.write_text("enabled: [bert]\n")
    environment = {"ZOO_HOME": str(tmp_path / "home")}

    def families(**more: str) -> list[str]:
        done = zoo(tmp_path, "families", "--json", **environment, **more)
        return list(json.loads(done.stdout)["families"])

    assert families() == ["bert"]
    assert families(ZOO_PLUGINS="gpt") == ["gpt"]
    assert zoo(tmp_path, "plugins", "enable", "gpt", **environment).returncode == 0
    assert families() == ["bert", "gpt"]
    assert zoo(tmp_path, "plugins", "disable", "converters", **environment).returncode == 2
    file.write_text("enable: [bert]\n")
    done = zoo(tmp_path, "families", **environment)
    assert done.returncode == 3 and str(file) in done.stderr and "`enable`" in done.stderr
    file.write_text("enabled:\n")
    done = zoo(tmp_path, "families", **environment)
    assert done.returncode == 3 and f"{file}: enabled: Expected `array`" in done.stderr
    file.write_text("enabled: [bert, nope]\n")
    done = zoo(tmp_path, "families", **environment)
    assert done.returncode == 5 and f"{file} enables nope, which is not installed" in done.stderr
    assert zoo(tmp_path, "plugins", "disable", "nope", **environment).returncode == 0
    assert families() == ["bert"]


def test_info_of_a_plugin(tmp_path: Path) -> None:
    lines = zoo(tmp_path, "plugins", "info", "distilbert").stdout.splitlines()
    values = dict(line.split(maxsplit=1) for line in lines)
    assert values["families"] == values["recipes"] == "distilbert"
    assert values["health"] == "ok" and len(values["record"]) == 64


def test_a_plugin_that_fails_to_import_is_one_warning_and_the_rest_works(tmp_path: Path) -> None:
    distribution(tmp_path, "zoo-sad", "sad", "zoo_sad", "raise RuntimeError('out of\\nluck')\n")
    done = zoo(tmp_path, "families", "--json")
    assert done.returncode == 0
    assert "bert" in json.loads(done.stdout)["families"]
    assert done.stderr.count("\n") == 1
    for word in ("warning", "sad", "zoo-sad 1.2", "RuntimeError: out of luck"):
        assert word in done.stderr
    plugins = json.loads(zoo(tmp_path, "plugins", "--json").stdout)["plugins"]
    assert "broken" in next(p["health"] for p in plugins if p["name"] == "sad")


def test_broken_family_is_exit_code_5(tmp_path: Path) -> None:
    distribution(tmp_path, "zoo-sad", "sad", "zoo_sad", "import nowhere\n")
    done = zoo(tmp_path, "info", "sad")
    assert done.returncode == 5
    assert done.stderr.count("\n") == 1
    assert zoo(tmp_path, "doctor").returncode == 5


def test_strict_mode_makes_a_broken_plugin_an_error(tmp_path: Path) -> None:
    distribution(tmp_path, "zoo-sad", "sad", "zoo_sad", "1 / 0\n")
    done = zoo(tmp_path, "families", ZOO_STRICT_PLUGINS="1")
    assert done.returncode == 5
    assert "ZeroDivisionError" in done.stderr


def test_broken_plugin_does_not_affect_other_commands(tmp_path: Path) -> None:
    distribution(tmp_path, "zoo-sad", "sad", "zoo_sad", "raise SystemExit(9)\n")
    done = zoo(tmp_path, "info", "all-minilm-l6-v2")
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.by_default("entries0")
@pytest.mark.parametrize("entries", [("twin", "twin"), ("one", "two")])
def test_a_name_of_two_distributions_is_left_out_and_an_error_if_used(
    tmp_path: Path, entries: tuple[str, str]
) -> None:
    """The entry points or the families of the plugins have one name."""
    distribution(tmp_path, "zoo-one", entries[0], "zoo_one", HEALTHY.format(name="twin"))
    distribution(tmp_path, "zoo-two", entries[1], "zoo_two", HEALTHY.format(name="twin"))
    done = zoo(tmp_path, "families", "--json")
    assert done.returncode == 0
    families = json.loads(done.stdout)["families"]
    assert "bert" in families and "twin" not in families
    assert "warning: 2 plugins " in done.stderr and done.stderr.count("\n") == 1
    used = zoo(tmp_path, "pretrain", "twin", "-o", "run")
    strict = zoo(tmp_path, "families", ZOO_STRICT_PLUGINS="1")
    for ended in (used, strict):
        assert ended.returncode == 5
        assert "zoo-one 1.2" in ended.stderr and "zoo-two 1.2" in ended.stderr
        assert "uninstall" in ended.stderr


@pytest.mark.long
@pytest.mark.parametrize("entry", ["bert", "thief"])
def test_built_in_families_precede_others(tmp_path: Path, entry: str) -> None:
    source = HEALTHY.format(name="bert").replace('("bert",)', '("stolen",)')
    distribution(tmp_path, "zoo-thief", entry, "zoo_thief", source)
    done = zoo(tmp_path, "families", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["families"]["bert"]["model_types"] == ["bert"]
    for word in ("warning", "zoo-thief 1.2", "plm-zoo", "uninstall zoo-thief"):
        assert word in done.stderr
    assert zoo(tmp_path, "families", ZOO_STRICT_PLUGINS="1").returncode == 5
    assert zoo(tmp_path, "info", "bert-base-uncased").returncode == 0


def test_environment_variable_restricts_plugins(tmp_path: Path) -> None:
    distribution(tmp_path, "zoo-mine", "mine", "zoo_mine", HEALTHY.format(name="mine"))
    done = zoo(tmp_path, "families", "--json", ZOO_PLUGINS="mine")
    assert list(json.loads(done.stdout)["families"]) == ["mine"]
    assert zoo(tmp_path, "families", ZOO_PLUGINS="mien").returncode == 5


def test_a_hook_with_an_argument_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    source = f"{HOOKIMPL}@hookimpl\ndef zoo_families(x):\n    return []\n"
    distribution(tmp_path, "zoo-odd", "odd", "zoo_odd", source)
    done = zoo(tmp_path, "families")
    assert done.returncode == 0
    assert "zoo-odd 1.2" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.by_default("more0")
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_plugins_with_one_name_are_listed(tmp_path: Path, more: tuple[str, ...]) -> None:
    distribution(tmp_path, "zoo-one", "twin", "zoo_one", HEALTHY.format(name="twin"))
    distribution(tmp_path, "zoo-two", "twin", "zoo_two", HEALTHY.format(name="twin"))
    done = zoo(tmp_path, "plugins", *more)
    assert done.returncode == 5
    assert done.stderr.count("\n") == 1
    assert "2 plugins are called twin" in done.stderr
    if more:
        result = json.loads(done.stdout)["plugins"]
        twins = [plugin for plugin in result if plugin["name"] == "twin"]
        assert {plugin["distribution"] for plugin in twins} == {"zoo-one", "zoo-two"}
        assert [plugin for plugin in twins if "uninstall" not in plugin["remedy"]] == []
        assert {plugin["health"] for plugin in result if plugin not in twins} == {"ok"}
    else:
        assert "zoo-one 1.2" in done.stdout and "zoo-two 1.2" in done.stdout
        assert zoo(tmp_path, "doctor").returncode == 5


@pytest.mark.long
def test_a_plugin_that_exits_is_a_broken_one(tmp_path: Path) -> None:
    distribution(tmp_path, "zoo-sad", "sad", "zoo_sad", "raise SystemExit(9)\n")
    done = zoo(tmp_path, "families")
    assert done.returncode == 0
    assert "zoo-sad 1.2" in done.stderr and "SystemExit: 9" in done.stderr
    assert "bert" in done.stdout


def test_a_misspelt_hook_is_reported(tmp_path: Path) -> None:
    source = (
        "from zoo.plugins.hookspecs import hookimpl\n@hookimpl\ndef zoo_familys():\n    return []\n"
    )
    distribution(tmp_path, "zoo-odd", "odd", "zoo_odd", source)
    done = zoo(tmp_path, "families")
    assert "zoo_familys" in done.stderr


def test_a_plugins_registry_adds_models(tmp_path: Path) -> None:
    source = (
        "from pathlib import Path\nfrom zoo.plugins.hookspecs import hookimpl\n@hookimpl\n"
        "def zoo_checkpoints():\n    return [Path(__file__).with_name('rows.yaml')]\n"
    )
    distribution(tmp_path, "zoo-rows", "rows", "zoo_rows", source)
    row = "{family: bert, repo: a/b, head: none, size: tiny, parameters: 1, licence: mit}"
    (tmp_path / "rows.yaml").write_text(f"my-model: {row}\n")
    assert json.loads(zoo(tmp_path, "info", "my-model", "--json").stdout)["repo"] == "a/b"
    assert "my-model" in json.loads(zoo(tmp_path, "models", "--json").stdout)["registry"]


@pytest.mark.long
@pytest.mark.parametrize("has_row", [False, True])
def test_a_family_and_its_default_checkpoint_may_have_one_name(
    tmp_path: Path, has_row: bool
) -> None:
    source = HEALTHY.format(name="mine").replace(
        '    name = "mine"', '    name = "mine"\n    default_checkpoint = "mine"'
    )
    source += (
        "from pathlib import Path\n@hookimpl\n"
        "def zoo_checkpoints():\n    return [Path(__file__).with_name('rows.yaml')]\n"
    )
    distribution(tmp_path, "zoo-mine", "mine", "zoo_mine", source)
    row = "{family: mine, repo: a/b, head: none, size: tiny, parameters: 1, licence: mit}"
    (tmp_path / "rows.yaml").write_text(f"mine: {row}\n" if has_row else "")
    done = zoo(tmp_path, "info", "mine", "--json")
    if has_row:
        assert json.loads(done.stdout)["repo"] == "a/b"
    else:
        assert done.returncode == 2 and "no model is called 'mine'" in done.stderr


@pytest.mark.by_default("mine: {family: bert, repo: a/b, sixe: tiny}\\n")
@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (None, "No such file"),
        ("mine: {family: bert, repo: a/b, sixe: tiny}\n", "sixe"),
        ("bert-base-uncased: {family: bert, repo: a/b}\n", "already in the built-in registry"),
    ],
)
def test_broken_registry_of_a_plugin_is_one_warning(
    tmp_path: Path, rows: str | None, why: str
) -> None:
    source = (
        "from pathlib import Path\nfrom zoo.plugins.hookspecs import hookimpl\n@hookimpl\n"
        "def zoo_checkpoints():\n    return [Path(__file__).with_name('rows.yaml')]\n"
    )
    distribution(tmp_path, "zoo-rows", "rows", "zoo_rows", source)
    if rows is not None:
        (tmp_path / "rows.yaml").write_text(rows)
    done = zoo(tmp_path, "models", "--json")
    assert done.returncode == 0, done.stderr
    repo = json.loads(done.stdout)["registry"]["bert-base-uncased"]["repo"]
    assert repo != "a/b"
    assert done.stderr.count("\n") == 1
    assert "zoo-rows 1.2" in done.stderr and why in done.stderr
    assert zoo(tmp_path, "models", ZOO_STRICT_PLUGINS="1").returncode == 5


@pytest.mark.by_default("7")
@pytest.mark.parametrize("value", ["7", "[object()]", "[None]"])
def test_hook_with_invalid_return_value_is_reported(tmp_path: Path, value: str) -> None:
    source = f"{HOOKIMPL}@hookimpl\ndef zoo_families():\n    return {value}\n"
    distribution(tmp_path, "zoo-odd", "odd", "zoo_odd", source)
    done = zoo(tmp_path, "families", "--json")
    assert "zoo-odd" in done.stderr
    assert "bert" in json.loads(done.stdout)["families"]


def test_every_hook_has_its_type() -> None:
    assert {name for name in vars(hookspecs) if name.startswith("zoo_")} == HOOKS.keys()
    assert [name for name, hook in HOOKS.items() if hook.problem(object()) != "a object"] == []


FAMILY_WITH = HEALTHY.format(name="odd") + "\n\nMine.{} = {}\n"
FORMAT = """
from zoo.plugins.hookspecs import hookimpl
from zoo_converters.npy import Npy

class Odd(Npy):
    name = "odd"
    priority = "high"

@hookimpl
def zoo_formats():
    return [Odd()]
"""
LOGGER = """
from zoo.plugins.hookspecs import hookimpl
from zoo.plugins.logger import Logger

class Odd(Logger):
    name = 3

@hookimpl
def zoo_loggers():
    return [Odd]
"""


@pytest.mark.by_default("source0", "source2")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        (FAMILY_WITH.format("name", "5"), "a Mine whose name is 5, and not a text"),
        (FAMILY_WITH.format("name", "property(lambda self: 1 / 0)"), "zoo_families: ZeroDivision"),
        (FAMILY_WITH.format("model_types", "7"), "whose model_types is 7, and not a tuple of t"),
        (FAMILY_WITH.format("model_types", "('odd', None)"), "whose model_types is ('odd', None)"),
        (FAMILY_WITH.format("model_types", "('odd')"), "whose model_types is 'odd', and not a tup"),
        (FORMAT, "a Odd whose priority is 'high', and not an integer"),
        (LOGGER, "a Odd whose name is 3, and not a text"),
    ],
)
def test_attributes_of_the_wrong_type_are_reported(
    tmp_path: Path, source: str, message: str
) -> None:
    distribution(tmp_path, "zoo-odd", "odd", "zoo_odd", source)
    done = zoo(tmp_path, "plugins", "--json")
    health = {plugin["name"]: plugin["health"] for plugin in json.loads(done.stdout)["plugins"]}
    assert "plugin odd (from zoo-odd 1.2) is broken: " in health["odd"]
    assert message in health["odd"]
    assert {health[name] for name in health if name != "odd"} == {"ok"}
