"""The notebooks of ``examples/notebooks`` run, and print what they show."""

import json
import re
from pathlib import Path

import pytest

from tests.inference.conftest import packaged
from tools.notebooks import FIGURES, FOLDER, execute, notebooks, read, texts
from tools.site_hooks import notebook_page

__all__ = ["packaged"]
NOTEBOOKS = notebooks()
LOOK = "look_inside.ipynb"
IDS = [path.stem for path in NOTEBOOKS]


def test_there_are_four() -> None:
    assert IDS == ["distil_and_quantize", "look_inside", "search", "sentiment"]


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=IDS)
def test_outputs_are_reproduced(path: Path, packaged: Path) -> None:
    notebook, pages = execute(path)
    assert list(texts(notebook)) == list(texts(read(path)))
    for name, page in pages.items():
        assert (FIGURES / name).read_text("utf-8").count("<script") == page.count("<script") == 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=IDS)
def test_pages_have_code_and_outputs(path: Path) -> None:
    page = notebook_page(path)
    assert page.startswith("# ")
    for cell in read(path).cells:
        assert cell.source.partition("\n")[0].partition("](")[0] in page
    assert "zoo.convert" in page and "<script" not in page
    for text in texts(read(path)):
        assert text
        assert "Traceback" not in text and str(Path.home()) not in text


def test_the_page_of_a_look_is_shown() -> None:
    """The site has the page with the attention of all heads, in a frame below the cell."""
    (source,) = re.findall(r'<iframe class="page" src="([^"]+)"', notebook_page(FOLDER / LOOK))
    assert source == "../../figures/look_inside-1.html"  # Pages are folders of the site.
    page = (FIGURES / "look_inside-1.html").read_text("utf-8")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    (maps,) = json.loads(data[1])["texts"][0]["stacks"][0]["attention"]
    assert (maps["heads"], len(maps["layers"])) == (12, 6)
