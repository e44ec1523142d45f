"""A benchmark that was stopped goes on from its file of results."""

from pathlib import Path

from benchmarks._common import RunResults


def test_a_run_is_known_by_its_name_and_settings(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    RunResults(file, {"steps": 2}).add("first", [True, False])
    RunResults(file, {"steps": 3}).add("first", [False, False])
    again = RunResults(file, {"steps": 2})
    assert again.known == {"first": [True, False]}
    again.add("second", {"score": 0.5})
    assert RunResults(file, {"steps": 2}).known == {
        "first": [True, False],
        "second": {"score": 0.5},
    }
    assert RunResults(file, {"steps": 4}).known == {} == RunResults(None, {"steps": 2}).known


def test_half_a_line_of_a_killed_run_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    RunResults(file, {}).add("first", 1)
    whole = file.read_text()
    file.write_text(whole + whole[:9])
    RunResults(file, {}).add("second", 2)
    assert RunResults(file, {}).known == {"first": 1, "second": 2}
