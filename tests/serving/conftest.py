"""The models that tests serve, and two servers of them."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.inference.conftest import packaged
from tests.once import written_once
from tests.serving.making import write_adapter, write_models
from tests.serving.server import Server
from tests.warm import zoo

__all__ = ["packaged"]
KEY = "key-of-these-tests"
NAMES = ("minilm", "prompted", "sparse", "reranker", "classifier", "decoder")
TOOLBOX = Path(__file__).parents[2] / "examples" / "plugins" / "toolbox" / "zoo_toolbox"
ENTRY_POINTS = """\
[zoo.api1]
toolbox = zoo_toolbox

[zoo.api1.tasks]
next-token = zoo_toolbox.next_token:NextToken
"""


@pytest.fixture(scope="session")
def models(isolated_session: None, packaged: Path) -> Path:
    """A directory with the models of ``write_models``."""
    return written_once("served-models", lambda folder: write_models(folder, packaged))


@pytest.fixture(scope="session")
def peft_adapter(models: Path) -> Path:
    """A LoRA adapter of the classifier, written by peft."""
    return written_once("served-adapter", lambda folder: write_adapter(folder, models))


@pytest.fixture(scope="session")
def plugin_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the installed plugin of the examples, of which one task is declared."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(TOOLBOX, site / "zoo_toolbox")
    info = site / "zoo_toolbox-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-toolbox\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return site


@pytest.fixture(scope="session")
def server(
    models: Path,
    peft_adapter: Path,
    plugin_site: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """A server of all models, an adapter and the task of a plugin; no test may stop it."""
    adapter = tmp_path_factory.mktemp("adapter") / "legal"
    done = zoo("convert", peft_adapter, "--base", models / "classifier", "-o", adapter)
    assert done.returncode == 0, done.stderr
    path = os.pathsep.join(filter(None, [str(plugin_site), os.environ.get("PYTHONPATH")]))
    options = ("--adapter", f"classifier:legal={adapter}")
    with Server([models / name for name in NAMES], *options, PYTHONPATH=path) as running:
        yield running


@pytest.fixture(scope="session")
def guarded(models: Path) -> Iterator[Server]:
    """A server that wants a key, of two processes and a few models; no test may stop it."""
    names = ("classifier", "minilm")
    options = ("--api-key", KEY, "--workers", 2)
    with Server([models / name for name in names], *options) as running:
        yield running
