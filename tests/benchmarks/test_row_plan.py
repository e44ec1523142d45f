"""Synthetic corpora of the benchmark of rows, and the sides that need no other package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.row_plan import write_offsets


def test_synthetic_offsets_are_those_of_a_corpus(tmp_path: Path) -> None:
    documents = write_offsets(tmp_path, 300_000, 20, 7)
    sentences = np.fromfile(tmp_path / "sentences.bin", "<i8")
    firsts = np.fromfile(tmp_path / "documents.bin", "<i8")
    assert len(firsts) == documents + 1 > 10_000
    assert firsts[0] == 0
    assert firsts[-1] == len(sentences) - 1
    assert (np.diff(firsts) > 0).all()
    assert sentences[0] == 0
    assert sentences[-1] == 300_000
    assert np.diff(sentences).min() >= 1
    assert np.diff(sentences).max() == 7
    assert (tmp_path / "tokens.bin").stat().st_size == 600_000


@pytest.mark.long
def test_processes_read_the_same_rows(tmp_path: Path) -> None:
    """With enough documents that their sums are written."""
    write_offsets(tmp_path, 1_500_000, 10, 10)
    spans = []
    for part in ("first", "next"):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.row_plan", "--part", part, "--folder", tmp_path],
            env={**os.environ, "ZOO_HOME": str(tmp_path / "home")},
            stdout=subprocess.PIPE,
            check=True,
        )
        result = json.loads(done.stdout)
        assert result["private_mb"] < 50
        spans.append(result["spans"])
    assert spans[0] == spans[1]
    assert len(spans[0]) >= 256
    assert len(list((tmp_path / "home").rglob("ends.npy"))) == 1
