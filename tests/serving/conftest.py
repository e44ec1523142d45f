"""The models that tests serve, and two servers of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.inference.conftest import packaged
from tests.once import written_once
from tests.serving.making import write_models
from tests.serving.server import Server

__all__ = ["packaged"]
KEY = "key-of-these-tests"
NAMES = ("minilm", "prompted", "sparse", "reranker", "classifier", "decoder")


@pytest.fixture(scope="session")
def models(isolated_session: None, packaged: Path) -> Path:
    """A directory with the models of ``write_models``."""
    return written_once("served-models", lambda folder: write_models(folder, packaged))


@pytest.fixture(scope="session")
def server(models: Path) -> Iterator[Server]:
    """A server of all models; no test may stop it."""
    with Server([models / name for name in NAMES]) as running:
        yield running


@pytest.fixture(scope="session")
def guarded(models: Path) -> Iterator[Server]:
    """A server that wants a key, of two processes and a few models; no test may stop it."""
    names = ("classifier", "minilm")
    options = ("--api-key", KEY, "--workers", 2)
    with Server([models / name for name in names], *options) as running:
        yield running
