"""``zoo families``: short lines, all of one family, and the table of the documentation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from zoo.cli import cli
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


def shown(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["families", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_each_family_is_a_line_and_one_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, *lines = shown().splitlines()
    assert [line.split()[0] for line in lines] == sorted(all_families())
    bert = all_families()["bert"]
    text = shown("bert")
    assert [
        name for name in (*bert.heads(), *bert.sizes(), *bert.presets()) if name not in text
    ] == []
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_sizes_have_the_parameters_and_bytes_of_torch() -> None:
    gpt = all_families()["gpt"]
    count = sum(p.numel() for p in gpt.model(gpt.sizes()["tiny"], "none").parameters())
    value = json.loads(shown("gpt", "--json"))["families"]["gpt"]
    assert value["parameters"]["tiny"] == count
    row = next(r for r in shown("--sizes").splitlines() if r.split()[:2] == ["gpt", "tiny"])
    number, unit = row.split()[-2:]
    assert unit == "MB" and float(number) == pytest.approx(4 * count / 1e6, rel=0.005)
