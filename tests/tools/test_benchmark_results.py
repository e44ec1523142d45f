"""The chart and the table of benchmarks."""

import xml.etree.ElementTree as ElementTree

import pytest

from tools.benchmark_results import CHART, RESULTS, main, ratio


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
