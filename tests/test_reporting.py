"""Files of test results: written on request, one file for each test."""

import json
from pathlib import Path

import pytest

from tests.reporting import VARIABLE, record


def test_nothing_is_written_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    record("kill", cases=50)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [1, 2])
def test_the_running_test_is_named(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "results"))
    record("kill", cases=50, failures=number, measured="peak 3 MB")
    (path,) = (tmp_path / "results").iterdir()
    result = json.loads(path.read_text())
    assert result["command"].startswith("pytest tests/test_reporting.py::test_the_running")
    assert (result["cases"], result["failures"]) == (50, number)


def test_commands_do_not_share_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for seed in (1, 2, 2):
        record("fuzz", cases=10, command=f"python -m tests.fuzz --seed {seed}")
    assert len(list(tmp_path.iterdir())) == 2


def test_an_unknown_promise_is_an_error() -> None:
    with pytest.raises(KeyError, match=r"tests/reporting\.py"):
        record("immortality", cases=1)
