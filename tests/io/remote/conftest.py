"""Fixtures of this package."""

import pytest

from tests.remote import store, web
from zoo.io import retries
from zoo.io.remote.cache import forget_snapshots

__all__ = ["store", "web"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between requests, and let each test begin without snapshots."""
    monkeypatch.setattr(retries, "INITIAL_DELAY", 0.005)
    forget_snapshots()
