"""The table of families, printed by ``zoo families`` and written to the documentation."""

import os
import subprocess
import sys
from pathlib import Path

from zoo.plugins import all_families

ROOT = Path(__file__).parents[3]


def test_the_page_is_what_the_plugins_declare() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zoo", "families", "--markdown"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
        check=True,
    )
    page = (ROOT / "docs" / "families.md").read_text("utf-8")
    assert page == done.stdout, "run `make docs`"
    assert [name for name in all_families() if f"\n| {name} |" not in page] == []


def test_the_readme_names_every_family() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    for name in all_families():
        assert f"(plugins/zoo_{name})" in text
