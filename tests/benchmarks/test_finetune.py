"""The benchmark of fine-tuning: all sides run, and begin with the same losses."""

import sys
from pathlib import Path

import pytest

from benchmarks import finetune
from tests.checkpoints import Make, hub_checkpoint
from tests.finetuning.making import labelled

__all__ = ["hub_checkpoint"]


@pytest.mark.long
def test_all_sides_run_and_losses_agree(
    hub_checkpoint: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = labelled(tmp_path / "train.tsv", count=80)
    columns = ["--text", "text", "--label", "label"]
    model = hub_checkpoint("BertForMaskedLM")
    argv = ["finetune", str(model), str(table), *columns, "--smoke"]
    monkeypatch.setattr(sys, "argv", argv)
    finetune.main()
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines()[-3:]]
    assert rows == ["Trainer", "grouped", "zoo"]
