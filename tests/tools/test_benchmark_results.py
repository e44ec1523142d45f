"""The chart and the table of benchmarks."""

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from tools.benchmark_results import CHART, RESULTS, fallen_ratios, main, ratio


def test_the_chart_and_the_table_are_current() -> None:
    assert main(["--check"]) == 0, f"run python -m tools.benchmark_results after {RESULTS}"


@pytest.mark.parametrize(("higher", "expected"), [(True, 0.25), (False, 4)])
def test_a_ratio_is_above_one_where_zoo_is_better(higher: bool, expected: float) -> None:
    assert ratio({"zoo_value": 1, "peer_value": 4, "higher_is_better": higher}) == expected


def test_longer_bars_are_larger_ratios() -> None:
    tree = ElementTree.parse(CHART)
    bars = [part for part in tree.iter() if part.attrib.get("class") == "bar"]
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert len(widths) > 5 and widths == sorted(widths, reverse=True)


def results_of(seconds: float, **row: str) -> dict[str, Any]:
    bar = {
        "task": "embed",
        "peer": "library",
        "zoo_value": seconds,
        "peer_value": 2.0,
        "higher_is_better": False,
    }
    return {"rows": [{"chart": [bar], **row}]}


@pytest.mark.parametrize(
    ("new", "lines", "explained"),
    [
        (results_of(1.0), [], True),
        (results_of(1.02), [], True),
        (
            results_of(1.25),
            ["embed, next to library: 2 before, 1.6 now; no reason is given"],
            False,
        ),
        (
            results_of(1.25, reason="windows are read"),
            ["embed, next to library: 2 before, 1.6 now; windows are read"],
            True,
        ),
        ({"rows": []}, ["embed, next to library: 2, and no longer measured"], False),
    ],
)
def test_ratios_that_fell_are_listed_with_their_reason(
    new: dict[str, Any], lines: list[str], explained: bool
) -> None:
    assert fallen_ratios(results_of(1.0), new) == (lines, explained)
