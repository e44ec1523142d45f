"""Broken and hostile plugins, all installed at once: they hurt nobody, and are reported by name."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
import transformers

from tests import warm
from tests.checkpoints import SMALL, VOCABULARY
from tests.plugins.laying import find_again
from tests.plugins.making import HEALTHY, HOOKIMPL, distribution
from zoo.plugins import discovery, loading
from zoo.plugins.discovery import PluginInfo
from zoo.plugins.loading import isolated

PRINTS = "import os\nprint('noise')\nos.write(1, b'more noise\\n')\nos.system('echo even more')\n"
SLEEPS = "import os, time\ntime.sleep(float(os.environ.get('SLEEPS', 0.5)))\n"
RETURNS = HOOKIMPL + "@hookimpl\ndef zoo_families():\n    return {}\n"
NO_TINY = HEALTHY.replace(
    "class Mine(Bert):",
    "class Mine(Bert):\n    sizes = lambda self: {{'base': super().sizes()['tiny']}}",
)
ONE_HEAD = HEALTHY.replace(
    "class Mine(Bert):",
    "class Mine(Bert):\n    heads = lambda self: {{'none': super(Mine, self).heads()['none']}}",
)
OVERLAPPING = HEALTHY.replace(
    "class Mine(Bert):",
    "class Mine(Bert):\n"
    "    def weights(self, config, head):\n"
    "        rules = super().weights(config, head)\n"
    "        return rules.plus(rules.rules[0])\n",
)
# name -> source of the module, a part of the message
HOSTILE = {
    "importerror": ("import nowhere\n", "No module named 'nowhere'"),
    "syntaxerror": ("def hook(:\n", "SyntaxError: invalid syntax"),
    "raisinghook": (RETURNS.format("1 / 0"), "zoo_families: ZeroDivisionError"),
    "wrongtype": (RETURNS.format("[object()]"), "zoo_families returned a object"),
    "unnamed": (
        HEALTHY.format(name="unnamed").replace('name = "unnamed"', 'name = ""'),
        "zoo_families returned a Mine whose name is '', and not a text",
    ),
    "duplicate": (HEALTHY.format(name="shared"), "2 plugins provide the family shared"),
    "sameentry": (HEALTHY.format(name="sameentry"), "2 plugins are called sameentry"),
    "newapi": ("import nowhere\n", "is written for version 2 of the plugin API, and this zoo has"),
    "prints": (PRINTS + ONE_HEAD.format(name="prints"), ""),
    "sleeps": (SLEEPS + HEALTHY.format(name="sleeps"), ""),
    "notiny": (NO_TINY.format(name="notiny"), ""),
    "overlapping": (OVERLAPPING.format(name="overlapping"), ""),
    "exits": ("import os\nos._exit(3)\n", "SystemExit: 3"),
    "sysexits": ("import sys\nsys.exit(0)\n", "SystemExit: 0"),
}
# name -> command that uses the plugin, a part of the message
FOUND_WHEN_USED = {
    "notiny": (("pretrain", "notiny"), "its family notiny has no size 'tiny'"),
    "overlapping": (
        ("convert", "hub-overlapping"),
        "two of the rules of overlapping with head none fill embeddings.tokens.weight",
    ),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a checkpoint and all plugins; each writes its name to a file if imported."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, (source, _) in HOSTILE.items():
        leave_trace = f"open({str(folder / f'{name}.imported')!r}, 'w').close()\n"
        distribution(folder, f"zoo-{name}", name, f"zoo_{name}", leave_trace + source)
    distribution(folder, "zoo-other", "other", "zoo_other", HEALTHY.format(name="shared"))
    distribution(folder, "zoo-twin", "sameentry", "zoo_twin", HEALTHY.format(name="sameentry"))
    distribution(folder, "zoo-healthy", "healthy", "zoo_healthy", HEALTHY.format(name="healthy"))
    entry_points = folder / "zoo_newapi-1.2.dist-info" / "entry_points.txt"
    entry_points.write_text("[zoo.api2]\nnewapi = zoo_newapi\n")
    torch.manual_seed(0)
    config: Any = transformers.BertConfig
    model = transformers.BertModel(config(**SMALL))
    model.save_pretrained(folder / "hub")
    (folder / "hub" / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    shutil.copytree(folder / "hub", folder / "hub-overlapping")
    config = json.loads((folder / "hub" / "config.json").read_text())
    theirs = json.dumps({**config, "model_type": "overlapping"})
    (folder / "hub-overlapping" / "config.json").write_text(theirs)
    return folder


def imported(site: Path) -> Iterator[str]:
    for path in site.glob("*.imported"):
        path.unlink()
        yield path.stem


def zoo(site: Path, *arguments: object, **environment: str) -> "CompletedProcess[str]":
    environment = {"PYTHONPATH": str(site), "ZOO_HOME": str(site / "home"), **environment}
    return warm.zoo(*arguments, cwd=site, **environment)


@pytest.fixture(scope="module")
def families(site: Path) -> "CompletedProcess[str]":
    return zoo(site, "families", "--json")


def test_help_imports_no_plugin(site: Path) -> None:
    list(imported(site))
    done = zoo(site, "--help")
    assert (done.returncode, done.stderr, list(imported(site))) == (0, "", [])


@pytest.mark.parametrize("model", ["bert", "healthy"])
def test_conversion_of_a_healthy_family_imports_no_other_plugin(site: Path, model: str) -> None:
    config = json.loads((site / "hub" / "config.json").read_text())
    (site / "hub" / "config.json").write_text(json.dumps({**config, "model_type": model}))
    list(imported(site))
    done = zoo(site, "convert", "hub", "-o", f"out-{model}", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["family"] == model
    assert list(imported(site)) == []
    assert "plugin" not in done.stderr


def test_other_families_are_listed(families: "CompletedProcess[str]") -> None:
    assert families.returncode == 0, families.stderr
    listed = json.loads(families.stdout)["families"]
    assert {"bert", "healthy", "prints", "sleeps", "notiny", "overlapping"} <= listed.keys()
    assert not listed.keys() & {"shared", "sameentry", "newapi", "exits", "unnamed"}
    assert "noise" not in families.stdout and "more noise" in families.stderr


@pytest.mark.parametrize("name", [name for name, (_, message) in HOSTILE.items() if message])
def test_report_names_the_distribution_and_the_remedy(
    families: "CompletedProcess[str]", name: str
) -> None:
    lines = [line for line in families.stderr.splitlines() if f"zoo-{name} 1.2" in line]
    assert len(lines) == 1, families.stderr
    assert lines[0].startswith("warning: ") and HOSTILE[name][1] in lines[0]
    assert "uninstall" in lines[0] or f"`zoo plugins disable {name}`" in lines[0]


def test_plugin_for_another_version_is_not_imported(site: Path) -> None:
    list(imported(site))
    done = zoo(site, "info", "newapi")
    assert done.returncode == 5 and list(imported(site)) == []
    assert "this zoo has version 1; install a newer plm-zoo" in done.stderr


@pytest.mark.by_default("importerror")
@pytest.mark.parametrize("name", ["exits", "newapi", "sameentry", "importerror"])
def test_use_of_a_broken_plugin_is_exit_code_5(site: Path, name: str) -> None:
    done = zoo(site, "info", name, "--json")
    assert done.returncode == 5 and json.loads(done.stdout)["exit_code"] == 5


@pytest.mark.parametrize("name", FOUND_WHEN_USED)
def test_use_of_a_plugin_finds_what_its_declaration_does_not_show(site: Path, name: str) -> None:
    arguments, message = FOUND_WHEN_USED[name]
    done = zoo(site, *arguments, "-o", f"used-{name}")
    assert (done.returncode, done.stderr.count("\n")) == (5, 1), done.stderr
    assert f"plugin {name} (from zoo-{name} 1.2) is broken: {message}" in done.stderr
    assert f"`zoo plugins disable {name}`" in done.stderr
    assert not (site / f"used-{name}").exists()


# tests/conformance/test_declaration.py has the problem, and test_plugin_checks.py these lines.
@pytest.mark.long
def test_check_finds_what_is_printed_at_import(site: Path) -> None:
    done = zoo(site, "plugins", "check", "prints")
    assert done.returncode == 5 and done.stdout.splitlines() == [
        "prints (zoo-prints 1.2): 1 problem",
        "  problem: declaration of prints: zoo_prints prints 'noise' when it is declared",
    ]
    (line,) = [line for line in done.stderr.splitlines() if "noise" not in line and "error" in line]
    assert "prints (from zoo-prints 1.2)" in line and "`zoo plugins disable prints`" in line


def test_strict_mode(site: Path) -> None:
    assert zoo(site, "families", ZOO_STRICT_PLUGINS="1").returncode == 5


@pytest.mark.long
def test_plugin_with_several_versions(tmp_path: Path) -> None:
    """A distribution may support several versions of the API."""
    distribution(tmp_path, "zoo-old", "old", "zoo_old", HEALTHY.format(name="old"))
    entry_points = tmp_path / "zoo_old-1.2.dist-info" / "entry_points.txt"
    entry_points.write_text("[zoo.api2]\nold = nowhere\n[zoo.api1]\nold = zoo_old\n")
    done = zoo(tmp_path, "families", "--json")
    assert "old" in json.loads(done.stdout)["families"] and done.stderr == ""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginInfo]:
    """A healthy plugin whose import takes 0.1 s, found by this process."""
    source = "import time\ntime.sleep(0.1)\n" + HEALTHY.format(name="mine")
    distribution(tmp_path, "zoo-mine", "slow", "zoo_slow_mine", source)
    monkeypatch.syspath_prepend(tmp_path)
    find_again()
    yield discovery.installed()["slow"]
    loading.manager().unregister(name="slow")
    find_again()


def test_slow_import_is_a_warning(mine: PluginInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "SLOW_SECONDS", 0.05)
    with pytest.warns(
        loading.PluginWarning, match=r"zoo-mine 1\.2\) takes more than 0.05 s to imp"
    ):
        loading.load(mine.name)


def test_a_plugin_that_hangs_is_named_while_it_does(site: Path) -> None:
    variables = {"PYTHONPATH": os.pathsep.join([str(site), *sys.path]), "SLEEPS": "600"}
    program = (
        "from zoo.cli import main\n"
        "from zoo.plugins import loading\n"
        "loading.SLOW_SECONDS = 1\n"
        "main()\n"
    )
    command = subprocess.Popen(
        [sys.executable, "-c", program, "families"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables, "ZOO_PLUGINS": "bert,sleeps"},
        cwd=site,
    )
    assert command.stderr is not None
    with command:
        line = command.stderr.readline()
        hangs = command.poll() is None
        command.kill()
    assert hangs and line == (
        "warning: plugin sleeps (from zoo-sleeps 1.2) takes more than 1 s to import; "
        "ignore it with `zoo plugins disable sleeps`\n"
    )


def test_exit_of_a_forked_process_ends_it() -> None:
    """Plugins may start processes when they are imported."""
    with isolated():
        if not (child := os.fork()):
            os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
