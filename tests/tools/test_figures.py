"""The drawings of the documentation."""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator

import pytest

from tools.browser import BROWSER, Browser
from tools.figures.__main__ import FIGURES, FOLDER, main
from tools.figures.packing import CELL, COLOURS, LENGTH, SIZES
from tools.figures.recipes import compared
from zoo.distillation.recipes import any_recipe


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if BROWSER is None:
        pytest.skip("there is no Chromium on this machine")
    started = Browser()
    yield started
    started.close()


def test_the_figures_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_each_figure_is_on_a_page() -> None:
    pages = "".join(page.read_text("utf-8") for page in FOLDER.parent.rglob("*.md"))
    shown = re.findall(r"!\[[^\]]{20,}\]\((?:\.\./)?figures/([\w-]+)\.svg\)", pages)
    assert [name for name in FIGURES if name not in shown] == []


@pytest.mark.by_default("conversion", "recipes", "objectives")
@pytest.mark.parametrize("name", FIGURES)
def test_no_text_is_cut_or_leaves_its_box(browser: Browser, name: str) -> None:
    browser.open(FOLDER / f"{name}.svg")
    found = browser.evaluate(
        """(() => {
        const box = (e) => e.getBBox(), [, , wide, tall] = document.documentElement
          .getAttribute('viewBox').split(' ').map(Number);
        const boxes = [...document.querySelectorAll('rect:not(.page)')].map(box);
        const bad = [];
        for (const text of document.querySelectorAll('text')) {
          const b = box(text), y = b.y + b.height / 2;
          if (b.x < 0 || b.x + b.width > wide || b.y < 0 || b.y + b.height > tall)
            bad.push(text.textContent);
          for (const r of boxes)  // a text that begins in a box ends in it
            if (b.x > r.x && b.x < r.x + r.width && y > r.y && y < r.y + r.height)
              if (b.x + b.width > r.x + r.width + 1) bad.push(text.textContent);
        }
        return bad;
        })()"""
    )
    assert found == []


def test_packed_rows_have_each_token_once() -> None:
    drawn: Counter[str] = Counter()
    for part in ElementTree.parse(FOLDER / "packing.svg").iter():
        if part.attrib.get("class") in COLOURS and float(part.attrib["x"]) < 16 + CELL * LENGTH:
            drawn[part.attrib["class"]] += round(float(part.attrib["width"]) / CELL)
    # a row of its own, and its pieces in packed rows
    assert drawn == {colour: 2 * size for colour, size in zip(COLOURS, SIZES, strict=True)}


def test_the_layers_of_recipes_are_the_papers() -> None:
    # Sun et al. 2019, PKD-Skip: layers 2, 4, 6, 8, 10 of the teacher, counted from 1
    layers = [
        (teacher, student)
        for kind, student, teacher in compared(any_recipe("patient"))
        if kind == "hidden states"
    ]
    assert layers == [(1, 0), (3, 1), (5, 2), (7, 3), (9, 4)]
    # Wang et al. 2020: of the last layer only
    assert compared(any_recipe("minilm")) == [("attention", 5, 11), ("relations", 5, 11)]
