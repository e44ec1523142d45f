"""The notebooks of ``examples/notebooks`` run, and print what they show."""

from pathlib import Path

import pytest

from tests.inference.conftest import packaged
from tools.notebooks import execute, notebooks, read, texts
from tools.site_hooks import notebook_page

__all__ = ["packaged"]
NOTEBOOKS = notebooks()
IDS = [path.stem for path in NOTEBOOKS]


def test_there_are_four() -> None:
    assert IDS == ["distil_and_quantize", "look_inside", "search", "sentiment"]


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=IDS)
def test_outputs_are_reproduced(path: Path, packaged: Path) -> None:
    assert list(texts(execute(path))) == list(texts(read(path)))


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
