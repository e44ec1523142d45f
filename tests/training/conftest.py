"""A store shared by the tests of this package, so that each corpus is built once."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def training_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("training-home")


@pytest.fixture
def shared_home(isolated: None, training_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZOO_HOME", str(training_home))
    return training_home
