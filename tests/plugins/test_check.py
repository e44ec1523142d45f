"""The command ``zoo plugins --check``: every file of a plugin is checked."""

import json
from pathlib import Path

import pytest

from tests.plugins.laying import FAMILY, lay_out
from tests.warm import zoo
from zoo.plugins.check import check_plugin

ENDLESS = "import time\ntime.sleep(60)\n"


def check(site: Path) -> tuple[int, str, list[str]]:
    """Return exit code, status and problems of the plugin ``mine``."""
    done = zoo("plugins", "--check", "--json", PYTHONPATH=str(site), ZOO_PLUGINS="mine")
    plugins = json.loads(done.stdout)["plugins"]
    mine = next(plugin for plugin in plugins if plugin["name"] == "mine")
    return done.returncode, mine["health"], mine.get("problems", [])


def test_a_sound_plugin(tmp_path: Path) -> None:
    files = {"more.py": "print('hello')\n", "test_mine.py": "1 / 0\n"}
    assert check(lay_out(tmp_path, files)) == (0, "ok", [])


def test_every_broken_file_is_named(tmp_path: Path) -> None:
    files = {"model.py": "def build(:\n", "weights.py": "raise SystemExit(0)\n"}
    code, health, problems = check(lay_out(tmp_path, files))
    assert code == 5
    assert "zoo-mine 1.2" in health and "model.py, line 1" in health
    assert "import zoo_mine.weights: SystemExit: 0" in "\n".join(problems)
    assert "model of mine with head none: SyntaxError" in "\n".join(problems)


def test_without_the_option_the_first_module_alone_is_imported(tmp_path: Path) -> None:
    site = lay_out(tmp_path, {"model.py": "1 / 0\n"})
    done = zoo("plugins", "--json", PYTHONPATH=str(site))
    assert done.returncode == 0
    assert {plugin["health"] for plugin in json.loads(done.stdout)["plugins"]} == {"ok"}


@pytest.mark.parametrize(
    ("text", "said"),
    [(ENDLESS, "not imported after 4 s"), ("import os\nos._exit(3)\n", "ends the process, with 3")],
)
def test_module_that_hangs_or_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    """The package has no slow imports, so that the subprocess starts quickly."""
    site = lay_out(tmp_path, {"more.py": text}, first=FAMILY)
    monkeypatch.setenv("PYTHONPATH", str(site))
    (problem,) = check_plugin("mine", seconds=4)
    assert said in problem
