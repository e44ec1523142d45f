"""The benchmark of distillation: all sides run, and the plain loop has the losses of the zoo."""

import sys

import pytest

from benchmarks import distillation
from zoo.data.cache import SAMPLE


@pytest.mark.long
def test_all_sides_run_and_losses_agree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["distillation", "--smoke", "--folder", str(SAMPLE / "alice.txt")]
    monkeypatch.setattr(sys, "argv", argv)
    distillation.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[-4:]] == [
        "released",
        "plain",
        "zoo",
        "cached",
    ]
