"""Directories that are written once in a session, by the first test that needs them.

The workers of pytest-xdist share them: an export or a run takes seconds, and the tests that read it
are spread over all workers. No test may change them.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from zoo.io.locks import file_lock

FOLDER = "ZOO_TESTS_FOLDER"  # variable with the directory of the session, which forks inherit


def share_directory(factory: pytest.TempPathFactory) -> None:
    """Set the directory of the session, the same in all workers."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "once"
    folder.mkdir(exist_ok=True)
    os.environ[FOLDER] = str(folder)


def shared(name: str) -> Path:
    """Return a directory for all tests, which may be empty."""
    path = Path(os.environ[FOLDER], name)
    path.mkdir(exist_ok=True)
    return path


def written_once(name: str, write: Callable[[Path], object]) -> Path:
    """Return a directory, after writing it if no other test has done so.

    Args:
        name: name of the directory.
        write: function that writes into it; it is called with the path of the empty directory.
    """
    session = Path(os.environ[FOLDER])
    target = session / name
    complete = session / f"{name}.complete"
    with file_lock(session / f"{name}.lock"):
        if not complete.exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            write(target)
            complete.touch()
    return target
