"""Benchmarks of products on CPUs: both sides compute the same, and a table has their times."""

from pathlib import Path

import pytest

from benchmarks import int8_scales, onednn
from benchmarks.embed import packaged_model

pytestmark = pytest.mark.long


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    lines = [
        f"Sentence number {n} has some words, and then {n * 'more ' + 'end'}." for n in range(17)
    ]
    (tmp_path / "texts.txt").write_text("\n".join(lines), "utf-8")
    return tmp_path / "texts.txt"


def test_both_libraries_are_timed(texts: Path) -> None:
    rows = onednn.measured(str(packaged_model()), texts, threads=1, rounds=1).splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:]] == ["MKL", "oneDNN"]


def test_a_scale_for_each_token_is_closer_to_float32(texts: Path) -> None:
    rows = int8_scales.measured(str(packaged_model()), texts, threads=1, rounds=1).splitlines()
    batch, token = (float(row.split("|")[4]) for row in rows[2:])
    assert 0.97 < batch < token < 1
