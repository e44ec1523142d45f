"""The benchmark of few labels runs, and draws as many rows of each label."""

import argparse
import re
from pathlib import Path

import pytest

from benchmarks.few_labels import main, read, write_tables
from tests.finetuning.conftest import Pretrained, pretrained
from tests.inference.conftest import hub_checkpoint

__all__ = ["hub_checkpoint", "pretrained"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, count in (("train", 30), ("dev", 10)):
        lines = [f"{'abc'[n % 3]} {'hij'[n % 2]} {'d' * (n % 2)}\t{n % 2}" for n in range(count)]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.long
def test_a_table_of_both_sides_is_printed(
    pretrained: Pretrained, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, source = pretrained("BertModel")
    options = ["--labels", "4", "--seeds", "2", "--sides", "setfit", "full", "--max-steps", "2"]
    main([str(source), "--data", str(data), *options])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 4")]
    assert [re.split(r" *\| *", row)[2] for row in rows] == ["setfit", "full"]
    numbers = [float(number) for row in rows for number in re.findall(r"0\.\d{4}|1\.0000", row)]
    assert len(numbers) == 10 and 0 <= min(numbers) <= max(numbers) <= 1


def test_labels_are_drawn_evenly_by_seed(data: Path, tmp_path: Path) -> None:
    options = argparse.Namespace(data=data, eval_rows=None)
    drawn = {}
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        train, _ = write_tables(folder, 8, seed, options)
        rows = train.read_text().splitlines()[1:]
        assert [row[-1] for row in rows].count("1") == 4 and len(rows) == 8
        drawn[seed] = rows
    assert drawn[0] != drawn[1]
    assert len(read(data / "dev.tsv")) == 10
