"""The tables of docs/reliability.md match the committed results."""

import json
from pathlib import Path

import pytest

from tests.fuzz.table import PAGE, RESULTS, page, promises
from tests.reporting import PROMISES, VARIABLE, record


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text("utf-8")
    assert page(text, RESULTS) == text, "write it with `python -m tests.fuzz.table`"


def test_a_promise_without_a_result_has_no_figure(tmp_path: Path) -> None:
    rows = promises(tmp_path)[2:]
    assert len(rows) == len(PROMISES)
    assert [row for row in rows if "no result yet" not in row] == []


def test_results_of_several_tests_are_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    record("kill", cases=50, command="one")
    record("kill", cases=1200, failures=3, measured="peak 3 MB", command="two")
    (row,) = [row for row in promises(tmp_path) if "kill -9" in row]
    assert row.endswith("| `one`<br>`two` | 1,250 | 3 | peak 3 MB |")


def test_a_test_with_parameters_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for name in ("convert", "eval"):
        record("full-disk", cases=1, command=f"pytest tests/test_disks.py::test_full[{name}]")
    (row,) = [row for row in promises(tmp_path) if "full disk" in row]
    assert row.endswith("| `pytest tests/test_disks.py::test_full` | 2 | 0 |  |")


def test_results_are_whole() -> None:
    for path in RESULTS.glob("*.*.json"):
        result = json.loads(path.read_text("utf-8"))
        assert result["promise"] == path.name.partition(".")[0]
        assert result["cases"] > 0
