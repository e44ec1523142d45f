"""A store shared by the tests of this package, so that each corpus is built once."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def training_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # one for all workers of pytest-xdist: corpora are built once, and published at once
    base = tmp_path_factory.getbasetemp()
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "training-home"
    home.mkdir(exist_ok=True)
    return home


@pytest.fixture
def shared_home(isolated: None, training_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZOO_HOME", str(training_home))
    return training_home
