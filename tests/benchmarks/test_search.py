"""The benchmark of search: both sides have the same results."""

import sys

import pytest

from benchmarks import search


@pytest.mark.long
def test_both_sides_have_the_same_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["search", "--texts", "3000", "--queries", "600", "--width", "16", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", argv)
    search.main()
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    assert rows[-2:] == ["zoo", "sentence-transformers"]
    assert lines[-1].startswith("Memory of a search: ")


def test_other_results_end_the_benchmark() -> None:
    rows = [[{"corpus_id": 0, "score": 0.5}]]
    assert search.require_equal(rows, rows) == 0
    with pytest.raises(SystemExit, match="the results of query 0 differ"):
        search.require_equal(rows, [[{"corpus_id": 1, "score": 0.5}]])
    with pytest.raises(SystemExit, match=r"scores differ by 1\.0e-01"):
        search.require_equal(rows, [[{"corpus_id": 0, "score": 0.6}]])


def test_memory_that_grows_with_the_queries_ends_the_benchmark() -> None:
    search.require_bounded(10.0, 10.5)
    with pytest.raises(SystemExit, match=r"grows with the queries, from 10\.0 to 20\.0 MB"):
        search.require_bounded(10.0, 20.0)
