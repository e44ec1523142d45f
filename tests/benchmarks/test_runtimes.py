"""The benchmark of runtimes: all sides run, and embed as torch does."""

import sys

import pytest

from benchmarks import runtimes


@pytest.mark.long
def test_all_sides_run_and_agree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exact = tuple(side for side in runtimes.SIDES if side[0] != "gguf")  # needs Node.js
    monkeypatch.setattr(runtimes, "SIDES", exact)
    monkeypatch.setattr(sys, "argv", ["runtimes", "--smoke"])
    runtimes.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if "| zoo" in line]
    names = [runtimes.title(*side) for side in exact]
    assert [row[0].removeprefix("| ") for row in rows] == [*names, *names]
    cosines = {row[0]: float(row[3].removesuffix(" |")) for row in rows[: len(names)]}
    assert [name for name, cosine in cosines.items() if "float32" in name and cosine < 0.9999] == []
