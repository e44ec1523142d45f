"""The documentation as a site."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


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
