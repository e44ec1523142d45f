"""The benchmark of adapters: each side trains, and has a row."""

import sys
from pathlib import Path

import pytest

from benchmarks import adapters
from tests.checkpoints import Make, hub_checkpoint
from tests.finetuning.making import labelled

__all__ = ["hub_checkpoint"]


def test_both_libraries_have_a_row(
    hub_checkpoint: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    labelled(tmp_path / "train.tsv", count=40)
    labelled(tmp_path / "dev.tsv", count=20, seed=1)
    model = hub_checkpoint("BertModel")
    files = ["--train", "train.tsv", "--eval", "dev.tsv", "--text", "text", "--rows", "32"]
    sides = ["--sides", "lora-4", "peft lora-4"]
    argv = ["adapters", str(model), str(tmp_path), *files, *sides, "--smoke"]
    monkeypatch.setattr(sys, "argv", argv)
    adapters.main()
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines()[-2:]]
    assert [row[0].strip() for row in rows] == ["lora-4", "peft lora-4"]
    trained = [int(row[3].replace(",", "")) for row in rows]
    assert trained == [2 * 2 * 2 * 4 * 32 + 2 * 33] * 2  # layers, parts, factors, head
