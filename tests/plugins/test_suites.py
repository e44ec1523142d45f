"""Suites of plugins: they are listed without an import, and run like built-in ones."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.laying import find_again
from zoo.errors import PluginError, UsageError
from zoo.plugins.suites import find_suite, suite_names

MODULE = """
from dataclasses import dataclass
from zoo.suites.base import Suite, SuiteTask, TaskScore

@dataclass(frozen=True, kw_only=True)
class Half(SuiteTask):
    def find_files(self, data):
        return [data / "half.tsv"]

    def evaluate(self, model, files):
        return TaskScore.from_metrics({"accuracy": 0.5, "f1": 0.25})

HALVES = Suite("halves", "Halves", (Half(name="one", title="One"),))
WRONG = dict
"""
ENTRY_POINTS = """
[zoo.api1]
halves = zoo_halves
[zoo.api1.suites]
halves = zoo_halves:HALVES
other = zoo_halves:HALVES
wrong = zoo_halves:WRONG
"""


@pytest.fixture
def halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    info = tmp_path / "zoo_halves-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-halves\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "zoo_halves.py").write_text(MODULE)
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path)
    find_again()
    yield
    find_again()
    sys.modules.pop("zoo_halves", None)


@pytest.mark.usefixtures("halves")
def test_a_suite_of_a_plugin(tmp_path: Path) -> None:
    assert {"glue", "halves"} <= set(suite_names()) and "zoo_halves" not in sys.modules
    suite = find_suite("halves")
    (task,) = suite.select_tasks(["one"])
    score = task.evaluate(None, task.find_files(tmp_path))
    assert score.score == 37.5 and suite.average({"one": score}) == 37.5


@pytest.mark.usefixtures("halves")
def test_wrong_suites_are_refused() -> None:
    with pytest.raises(UsageError, match="no suite is called 'halfes'; did you mean halves"):
        find_suite("halfes")
    with pytest.raises(PluginError, match="is not a Suite"):
        find_suite("wrong")
    with pytest.raises(PluginError, match="the name of zoo_halves:HALVES is 'halves'"):
        find_suite("other")
