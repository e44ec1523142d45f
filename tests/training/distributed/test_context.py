"""What processes say of one another while they wait."""

from pathlib import Path

import pytest

from tests import warm

# The main process builds for a minute, and the other one waits for less.
SLOW_BUILD = """
import os
import sys
import time

from zoo.errors import ZooError
from zoo.training.distributed import context


def build():
    if os.environ["RANK"] == "0":
        time.sleep(60)
    return "built"


def main(arguments):
    context.SILENCE = 0.3
    context.BUILD_TIMEOUT = 1.5
    try:
        with context.DistContext.opened("cpu", timeout=60) as dist:
            dist.main_process_first(build)
    except ZooError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
"""


# Both processes have the same error, and the launcher ends the second one when the first has ended.
SAME_ERROR = """
import os
import sys
import time
from types import SimpleNamespace

from zoo.errors import UsageError
from zoo.training.distributed import context
from zoo.training.distributed.reporting import ReportedElsewhere


def interrupt(seconds):
    raise KeyboardInterrupt


def main(arguments):
    try:
        with context.DistContext.opened("cpu"):
            if os.environ["RANK"] == "1":
                context.time = SimpleNamespace(sleep=interrupt, monotonic=time.monotonic)
            raise UsageError("there is one document")
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        time.sleep(1)
        return error.exit_code
    except ReportedElsewhere:
        time.sleep(60)
"""


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_build.py").write_text(SLOW_BUILD)
    (tmp_path / "same_error.py").write_text(SAME_ERROR)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_a_build_is_waited_for_up_to_a_limit() -> None:
    """A line says for whom, again after twice the time."""
    done = warm.in_processes(2, module="slow_build")
    assert done.returncode == 130, done.stderr
    lines = done.stderr.splitlines()
    assert len([line for line in lines if line.startswith("waiting for process 0")]) == 3, lines
    assert lines[0] == "waiting for process 0, which prepares data or models, for 0 s"
    assert lines[-1].startswith("error: process 0"), lines
    assert "has prepared its data and model for 2 s; look at its machine" in lines[-1]


def test_an_error_of_all_is_reported_once_if_the_launcher_is_fast() -> None:
    done = warm.in_processes(2, module="same_error")
    assert done.returncode == 2
    assert done.stderr == "error: there is one document\n"
