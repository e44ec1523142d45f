"""The documentation as a site."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.once import written_once
from tools.browser import BROWSER, Browser

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site() -> Path:
    return written_once("site", build)


def build(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_page_is_in_the_navigation(site: Path) -> None:
    """MkDocs reports links and anchors that lead nowhere, and pages without an entry."""
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md")}
    assert [page for page in sorted(pages) if not (site / page / "index.html").is_file()] == []
    links = re.findall(r'href="([^"]+)"', (site / "index.html").read_text("utf-8"))
    assert {"getting-started/", "guides/sentiment/", "results/"} <= set(links)


def test_the_reference_has_every_command_and_every_public_name(site: Path) -> None:
    import zoo
    from tests.interfaces import commands

    reference = (site / "commands/index.html").read_text("utf-8")
    names = [path for path, command in commands() if path != "zoo" and not command.hidden]
    assert [name for name in names if f">{name}<a" not in reference] == []
    page = (site / "python/index.html").read_text("utf-8")
    public = [name for name in zoo.__all__ if not name.startswith("_")]
    assert [name for name in public if f">zoo.{name}<a" not in page] == []


def test_pages_load_nothing_from_another_host(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|link)[^>]+(?:src|href)="(https?:[^"]+)"')
    foreign = {
        (page.relative_to(site), match)
        for page in site.rglob("*.html")
        for match in loads.findall(page.read_text("utf-8"))
    }
    assert sorted(foreign) == []


def test_the_first_screen_installs_and_shows_a_session_before_the_chart(site: Path) -> None:
    page = (site / "index.html").read_text("utf-8")
    parts = ["with one command line", "pip install", "zoo run embed", "figures/ratios.svg"]
    # Names and options of a command have elements of their own.
    article = re.sub(r"<(?!img)[^>]+>", "", page[page.index("<article") :])
    places = [article.index(part) for part in parts]
    assert places == sorted(places)


def test_looking_inside_a_model_is_a_guide() -> None:
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    guides = settings[settings.index("- Guides:") : settings.index("- Training:")]
    assert "look.md" in guides and settings.count("look.md") == 1


SESSION = """$ zoo finetune model \\
    --train reviews.csv -o runs/reviews
accuracy 0.91
$ zoo look model "a text"
page: look.html
"""


def test_the_copy_button_copies_commands_without_prompts_and_output(site: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node on this machine")
    program = (
        "const document = {addEventListener() {}};"
        + (site / "site.js").read_text("utf-8").replace('"use strict";', "")
        + f"console.log(JSON.stringify([commandsOf({json.dumps(SESSION)}), commandsOf('x = 1')]))"
    )
    done = subprocess.run([node, "-e", program], capture_output=True, text=True, check=True)
    commands, code = json.loads(done.stdout)
    assert commands.split("\n") == [
        "zoo finetune model \\",
        "    --train reviews.csv -o runs/reviews",
        'zoo look model "a text"',
    ]
    assert code == ""  # Other code is copied as it is.


def test_the_button_of_the_theme_copies_the_commands(site: Path, browser: Browser) -> None:
    browser.open(site / "index.html")
    copied = browser.evaluate(
        """(() => {
        const buttons = [...document.querySelectorAll('[data-clipboard-target]')];
        buttons[1].click();
        return [buttons.length, buttons[1].getAttribute('data-clipboard-text')];
        })()"""
    )
    assert copied[0] >= 5 and copied[1].startswith("zoo run embed") and "$ " not in copied[1]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if BROWSER is None:
        pytest.skip("there is no Chromium on this machine")
    started = Browser()
    yield started
    started.close()
