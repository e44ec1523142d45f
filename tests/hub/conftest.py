from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import hub_checkpoint as hub_checkpoint
from tests.hub.hub_server import Hub, etag_of, tiny_safetensors
from zoo.hub import DownloadResult, fetch
from zoo.hub.metadata import repo_folder
from zoo.io import retries

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

ETAGS = {name: etag_of(name, content) for name, content in FILES.items()}

Fetch = Callable[..., DownloadResult]


def needed(names: Sequence[str]) -> Sequence[str]:
    return [name for name in NEEDED if name in names]


def partial(name: str = WEIGHTS, content: bytes | None = None) -> Path:
    """Return the path of a partial file; write it if content is given."""
    path = repo_folder(REPO) / f"{ETAGS[name]}.partial"
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return path


@pytest.fixture
def commit(hub: Hub) -> str:
    """Add a tiny repository to the Hub, and return its commit."""
    return hub.add(REPO, FILES)


@pytest.fixture
def get() -> Fetch:
    def get(repo: str = REPO, **options: Any) -> DownloadResult:
        return fetch(repo, **{"select": needed, **options})

    return get


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the delays between retries."""
    monkeypatch.setattr(retries, "INITIAL_DELAY", 0.005)
