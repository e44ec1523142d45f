"""Figures are SVG whose marks lie where their values are."""

import itertools
from pathlib import Path
from xml.etree import ElementTree

import pytest

from zoo.errors import UsageError
from zoo.report.figures import (
    MOST_LABELS,
    plot_bands,
    plot_confusion,
    plot_reliability,
    plot_speeds,
    require_svg,
)

EVIL = "<a> & \x1b[1m\N{SNOWMAN}" + "x" * 100
SVG = "{http://www.w3.org/2000/svg}"


def read(path: Path) -> ElementTree.Element:
    """Return the root of a figure, of which all coordinates are within it."""
    root = ElementTree.parse(path).getroot()
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for element in root.iter():
        for name, limit in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            assert 0 <= float(element.get(name, 0)) <= limit
        for across, down in points(element):
            assert 0 <= across <= width and 0 <= down <= height
    return root


def points(element: ElementTree.Element) -> list[tuple[float, ...]]:
    return [tuple(map(float, pair.split(","))) for pair in element.get("points", "").split()]


def texts(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def test_bands_surround_their_curve(tmp_path: Path) -> None:
    band = [(0, 4.0, 3.0, 5.0), (50, 2.0, 2.0, 2.5), (100, 1.0, 0.0, 2.0)]
    curves = {EVIL: band, "one": [(100, 5.0, 5.0, 5.0)], "none": []}
    plot_bands(tmp_path / "a.svg", {"loss": curves}, x="step")
    root = read(tmp_path / "a.svg")
    (line,), (area,) = root.iter(f"{SVG}polyline"), root.iter(f"{SVG}polygon")
    middle = points(line)
    assert [across for across, _ in middle] == sorted(across for across, _ in middle)
    # from a loss of 4 to 1, and from 4 to 2, on one scale that grows downwards
    assert (middle[2][1] - middle[0][1]) / (middle[1][1] - middle[0][1]) == pytest.approx(1.5, 0.01)
    high, low = points(area)[:3], points(area)[:2:-1]
    for (_, top), (_, value), (_, bottom) in zip(high, middle, low, strict=True):
        assert top <= value <= bottom
    # a point alone: the largest loss, at the last step
    dots = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in root.iter(f"{SVG}circle")]
    assert dots == [*middle, (middle[2][0], high[0][1])]
    shown = texts(root)
    assert {"step", "loss", "one"} <= {*shown} and "none" not in shown
    (name,) = [text for text in shown if text.startswith("<a> & ")]
    assert "…" in name and len(name) < 60


def test_the_confusion_matrix_has_the_counts_and_the_worst_labels(tmp_path: Path) -> None:
    plot_confusion(tmp_path / "a.svg", {"good": {"good": 6, "bad": 2}, "bad": {"bad": 1234}})
    root = read(tmp_path / "a.svg")
    cells = [(r.attrib["fill-opacity"]) for r in root.iter(f"{SVG}rect") if r.get("fill-opacity")]
    assert list(map(float, cells)) == [0.75, 0.25, 0, 1]
    assert [t for t in texts(root) if t.replace(",", "").isdigit()] == ["6", "2", "0", "1,234"]
    names = [f"label {number}" for number in range(MOST_LABELS + 5)]
    pairs = itertools.pairwise([*names, names[0]])
    wrong = {a: {a: 1, b: int(number >= 5)} for number, (a, b) in enumerate(pairs)}
    plot_confusion(tmp_path / "b.svg", wrong)
    shown = {*texts(read(tmp_path / "b.svg"))}
    assert {*names} & shown == {*names[5:]}


def test_a_calibrated_model_lies_on_the_diagonal(tmp_path: Path) -> None:
    bins = [
        {"confidence": value, "accuracy": value, "samples": samples}
        for value, samples in ((0.0, 1), (0.4, 4), (1.0, 8))
    ]
    plot_reliability(tmp_path / "a.svg", bins)
    root = read(tmp_path / "a.svg")
    heights = [float(r.attrib["height"]) for r in root.iter(f"{SVG}rect") if r.get("x")]
    assert [height / heights[2] for height in heights] == pytest.approx([1 / 8, 1 / 2, 1], abs=0.01)
    (line,) = root.iter(f"{SVG}polyline")
    (left, bottom), middle, (right, top) = points(line)
    assert middle == pytest.approx((left + 0.4 * (right - left), bottom + 0.4 * (top - bottom)))
    (diagonal,) = [p.attrib["d"] for p in root.iter(f"{SVG}path") if "L" in p.attrib["d"]]
    assert diagonal == f"M{left:g} {bottom:g}L{right:g} {top:g}"


def test_bars_have_the_ratio_of_speeds(tmp_path: Path) -> None:
    speeds = {"cpu float32": (100.0, 4.0, 8.0, 12.0), "onnx": (400.0, 1.0, 1.5, 2.0)}
    plot_speeds(tmp_path / "a.svg", speeds)
    root = read(tmp_path / "a.svg")
    slow, fast = [float(r.attrib["width"]) for r in root.iter(f"{SVG}rect") if r.get("x")]
    assert fast == pytest.approx(4 * slow, abs=0.2)
    first, second = [float(circle.attrib["cx"]) for circle in root.iter(f"{SVG}circle")]
    assert first > second
    assert {"cpu float32", "onnx"} <= {*texts(root)}


@pytest.mark.parametrize("name", ["a.png", "a.pdf", "a"])
def test_other_formats_are_refused(name: str) -> None:
    require_svg(Path("a.SVG"))
    with pytest.raises(UsageError, match=r"must end in \.svg; a browser"):
        require_svg(Path(name))
