"""Points, intervals and ranges of a drawing lie where their values are."""

import re
from xml.etree import ElementTree

import pytest

from zoo.report.drawings import ranges_drawing

ROWS = [
    {"accuracy": 0.6, "low": 0.5, "high": 0.7, "lowest": 0.4, "highest": 0.8},
    {"accuracy": 0.5, "low": 0.45, "high": 0.56, "lowest": 0.5, "highest": 0.5},
]


def test_ranges_lie_on_one_scale() -> None:
    drawing = ranges_drawing("Accuracy", ROWS, ["gold", "<random> & none"])
    root = ElementTree.fromstring(f"<svg>{drawing.content}</svg>")
    points = [float(circle.attrib["cx"]) for circle in root.iter("circle")]
    scale = (points[0] - points[1]) / 0.1
    origin = points[0] - 0.6 * scale
    lines = [path.attrib["d"] for path in root.iter("path") if "H" in path.attrib["d"]]
    ends = [re.match(r"M([\d.]+) [\d.]+H([\d.]+)M", line) for line in lines]
    intervals = [tuple(map(float, match.groups())) for match in ends if match]
    bars = list(root.iter("rect"))
    for row, (low, high), bar in zip(ROWS, intervals, bars, strict=True):
        places = [low, high, float(bar.attrib["x"])]
        places.append(places[-1] + float(bar.attrib["width"]))
        expected = [origin + scale * row[name] for name in ("low", "high", "lowest", "highest")]
        assert places == pytest.approx(expected, abs=0.3)
    assert max(points) < drawing.width
    texts = [text.text for text in root.iter("text")]
    assert {"gold", "<random> & none", "lines: 95 % interval; bars: range"} <= set(texts)


def test_rows_without_ranges_have_intervals_only() -> None:
    rows = [{name: row[name] for name in ("accuracy", "low", "high")} for row in ROWS]
    drawing = ranges_drawing("Accuracy", rows, ["a", "b"])
    assert "<rect" not in drawing.content and drawing.content.count("<circle") == 2
