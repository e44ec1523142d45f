"""Executors other than processes of this machine."""

import json
from pathlib import Path

import pytest

from tests.cleaning.making import PROSE, read_rows, write_texts
from tests.in_process import exit_code


# Ray takes half a minute to start.
@pytest.mark.long
def test_ray_has_the_texts_of_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in"
    write_texts(source / "a.jsonl", [PROSE, "Too short.", f"Home | About\n{PROSE}"])
    write_texts(source / "b.jsonl", [PROSE, PROSE.replace("Monday", "Friday")])
    options = ("--rule", "c4", "--deduplicate", "lines", "--quiet", "--json")
    reports = []
    for executor in ("local", "ray"):
        words = [str(source), "-o", str(tmp_path / executor), "--executor", executor]
        assert exit_code(["corpus", "clean", *words, *options]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert reports[0]["rules"] == reports[1]["rules"]
    assert read_rows(tmp_path / "local") == read_rows(tmp_path / "ray")
