from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.hub.hub_server import Hub, tiny_safetensors
from zoo.hub import Fetched, fetch, patience

REPO = "someone/tiny"
WEIGHTS = "model.safetensors"
FILES = {
    "README.md": b"# tiny\n",
    "config.json": b'{"model_type": "tiny"}\n',
    "vocab.txt": b"",
    "onnx/model.bin": b"not needed",
    WEIGHTS: tiny_safetensors(),
}
NEEDED = ["config.json", "vocab.txt", WEIGHTS]

Fetch = Callable[..., Fetched]


def needed(names: Sequence[str]) -> Sequence[str]:
    return [name for name in NEEDED if name in names]


@pytest.fixture
def commit(hub: Hub) -> str:
    """The commit of a tiny repository on the Hub."""
    return hub.add(REPO, FILES)


@pytest.fixture
def get() -> Fetch:
    def get(repo: str = REPO, **options: Any) -> Fetched:
        return fetch(repo, **{"select": needed, **options})

    return get


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries that a test can wait for."""
    monkeypatch.setattr(patience, "FIRST_PAUSE", 0.005)
