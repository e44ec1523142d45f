"""Metrics that users select by name: what they read, settings, and wrong names."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.plugins.laying import find_again
from zoo.errors import PluginError, UsageError
from zoo.plugins.metrics import find_metric, greater_is_better, select_metrics, selectable_metrics

MODULE = """
from dataclasses import dataclass
import numpy as np
from zoo.metrics import Metric, MetricSpec

@dataclass(frozen=True, kw_only=True)
class Within(Metric):
    distance: float = 1.0
    strict: bool = False

    def __post_init__(self):
        if self.distance < 0:
            raise ValueError(f"distance is {self.distance}, which is negative")

    def statistics(self, predictions, references):
        return (np.abs(predictions - references) <= self.distance)[:, None].astype(float)

    def value(self, statistics):
        return float(statistics.mean())

WITHIN = MetricSpec("within", "share of small errors", ("numbers", "classes"), metric=Within)
COST = MetricSpec("cost", "mean cost", ("numbers",), greater_is_better=False)
OTHER = MetricSpec("other", "something", ("numbers",))
WRONG = MetricSpec("wrong", "something", ("numbers",), metric=dict)
"""
ENTRY_POINTS = """
[zoo.api1]
shares = zoo_shares
[zoo.api1.metrics]
"""


@pytest.fixture
def shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from _installed(tmp_path, monkeypatch, "within", "cost")


def _installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str, target: str = ""
) -> Iterator[None]:
    lines = [f"{name} = zoo_shares:{target or name.upper()}\n" for name in names]
    info = folder / "zoo_shares-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-shares\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS + "".join(lines))
    (folder / "zoo_shares.py").write_text(MODULE)
    monkeypatch.setenv("ZOO_HOME", str(folder / "home"))
    monkeypatch.syspath_prepend(folder)
    find_again()
    yield
    find_again()
    sys.modules.pop("zoo_shares", None)


@pytest.mark.usefixtures("shares")
def test_settings_are_converted() -> None:
    metrics = select_metrics(["within:distance=2,strict=true"], "numbers", "regression")
    metric: Any = metrics["within"]
    assert (metric.distance, metric.strict) == (2.0, True)
    statistics = metric.statistics(np.array([1.0, 5.0]), np.array([3.0, 2.0]))
    assert statistics.shape == (2, 1) and metric.value(statistics) == 0.5


@pytest.mark.usefixtures("shares")
def test_declarations_say_what_is_read_and_which_side_is_better() -> None:
    assert selectable_metrics("numbers") == ["within"] == selectable_metrics("classes")
    assert "within" not in selectable_metrics("texts")
    assert not greater_is_better("cost") and greater_is_better("within")
    assert not greater_is_better("mse") and greater_is_better("never declared")


@pytest.mark.usefixtures("shares")
@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ("withn", "regression has no metric 'withn' to select; did you mean within"),
        ("cost", "cost is not selected: the tasks that have it always report it; leave it out"),
        ("accuracy", "accuracy is not selected: the tasks that have it always report it"),
        ("bleu", "regression has no metric 'bleu' to select; there are within"),
        ("within:distnce=1", "the metric within has no setting 'distnce'; did you mean distance"),
        ("within:distance", "has settings 'distance'; write them as within:SETTING=VALUE"),
        ("within:distance=-1", "distance is -1.0, which is negative"),
        ("within:distance=far", "the metric within: Expected `float`"),
    ],
)
def test_wrong_requests_are_one_line(request_: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        select_metrics([request_], "numbers", "regression")
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.usefixtures("shares")
def test_a_metric_is_selected_once() -> None:
    with pytest.raises(UsageError, match="the metric within is selected twice"):
        select_metrics(["within", "within:distance=2"], "numbers", "regression")


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("within", "OTHER", "the name of zoo_shares:OTHER is 'other'"),
        ("wrong", "WRONG", "is not a subclass of Metric"),
        ("within", "Within", "zoo_shares:Within is not a MetricSpec"),
    ],
)
def test_a_broken_declaration_is_named(
    name: str, target: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in _installed(tmp_path, monkeypatch, name, target=target):
        with pytest.raises(PluginError, match=message):
            find_metric(name)
