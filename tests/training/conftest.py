"""A store shared by the tests of this package, so that each corpus is built once."""

from pathlib import Path

import pytest

from tests.once import shared


@pytest.fixture(scope="session")
def training_home(isolated_session: None) -> Path:
    return shared("training-home")


@pytest.fixture
def shared_home(isolated: None, training_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZOO_HOME", str(training_home))
    return training_home
