"""The metadata with which the start is timed lists as many families as it says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.startup import family_names, write_metadata


@pytest.mark.parametrize("count", [1, len(family_names())])
def test_families_are_those_of_the_metadata(count: int, tmp_path: Path) -> None:
    folder = write_metadata(tmp_path, count)
    done = subprocess.run(
        [sys.executable, "-m", "zoo", "families", "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [*json.loads(done.stdout)["families"]] == sorted(family_names()[:count])
