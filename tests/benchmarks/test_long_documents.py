"""The benchmark of long documents runs with a tiny model: both sides have the same results."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import long_documents, modernbert

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("family", ["longformer", "bigbird"])
def test_both_sides_compute_the_same(family: str) -> None:
    ours, theirs = long_documents.models(family, 96, 16, small=True)
    batch = long_documents.make_batch(96, 1000)
    assert modernbert.difference(*long_documents.forward(ours, theirs, batch)) < 1e-5
    assert modernbert.difference(*long_documents.training(ours, theirs, batch)) < 1e-5


@pytest.mark.long
def test_the_table_has_all_cells() -> None:
    argv = [sys.executable, "-m", "benchmarks.long_documents", "--smoke"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" tokens, ") == 4
