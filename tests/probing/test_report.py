"""Pages and pictures of probing have the curves of all models."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from zoo.errors import UsageError
from zoo.probing.probing import LayerResult, ModelResult
from zoo.probing.report import Probing, draw, render
from zoo.probing.settings import ProbeRecipe
from zoo.report.files import check_report_file, write_report_file

SVG = "{http://www.w3.org/2000/svg}"


def write(probed: Probing, path: Path) -> None:
    write_report_file(path, lambda: render(probed), lambda: draw(probed))


def result(model: str = "a<b") -> ModelResult:
    layers = []
    for number in range(3):
        accuracies = [0.5 + 0.1 * number, 0.6 + 0.1 * number]
        values = {"accuracy": accuracies, "selectivity": [0.1, 0.2], "codelength": [1500.0, 1700.0]}
        layers.append(LayerResult(number, f"layer {number}", values))
    layers.append(LayerResult(None, "learned mix", layers[2].values, [0.25, 0.25, 0.5]))
    return ModelResult(model, "bert", "none", layers, 3, 0)


def probing(*models: ModelResult) -> Probing:
    counts = {"train": 9, "validation": 1, "evaluation": 5}
    recipe = ProbeRecipe()
    return Probing("edge", list(models), ("x", "y"), 0.5, counts, counts, "mean", recipe, 2, "each")


def test_a_picture_has_a_panel_for_each_metric_and_a_curve_for_each_model() -> None:
    figure = ElementTree.fromstring(draw(probing(result(), result("other"))))
    panels = figure.findall(f"{SVG}g")
    assert len(panels) == 2  # accuracy and selectivity
    names = [text.text for text in panels[0].iter(f"{SVG}text") if text.get("class") == "name"]
    assert names == ["a<b", "a<b, learned mix", "other", "other, learned mix"]
    lines = panels[0].findall(f"{SVG}polyline[@class='s0']")
    dots = panels[0].findall(f"{SVG}circle[@class='s0']")
    assert len(lines) >= 1 and len(dots) == 3
    # A higher accuracy is higher up; the middle of the seeds rises by 0.1 with each layer.
    heights = [float(dot.get("cy", "")) for dot in dots]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)
    assert heights[0] > heights[1]


def test_tables_have_means_and_deviations() -> None:
    shown = probing(result())
    assert shown.header == ["layer", "accuracy", "selectivity", "codelength (kbit)"]
    assert shown.rows(shown.models[0])[1] == [
        "layer 1",
        "0.6500 ± 0.0707",
        "0.1500 ± 0.0707",
        "1.60 ± 0.14",
    ]
    assert probing(result(), result()).model_names == ["a<b", "a<b (2)"]


def test_a_page_has_the_tables_and_no_link() -> None:
    page = render(probing(result()))
    assert "<script" not in page and "http" not in page
    assert "a&lt;b" in page and "a<b" not in page
    assert "0.6500 ± 0.0707" in page and "0.250, 0.250, 0.500" in page
    assert "control task: each" in page
    assert re.search(r'<tr class="best"><td>layer 2</td>', page)
    assert "data:image/svg+xml;base64," in probing(result()).to_html()
    assert "iframe" in probing(result())._repr_html_()


def test_files_are_pages_or_pictures(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"end the name in .html, .svg or .png"):
        check_report_file(tmp_path / "layers.pdf", "probing")
    for name in ("layers.html", "layers.svg"):
        check_report_file(tmp_path / name, "probing")
        write(probing(result()), tmp_path / name)
    assert (tmp_path / "layers.svg").read_text().startswith("<svg")
    assert (tmp_path / "layers.html").read_text().startswith("<!doctype html>")


def test_png(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    write(probing(result()), tmp_path / "layers.PNG")
    assert (tmp_path / "layers.PNG").read_bytes()[:4] == b"\x89PNG"
