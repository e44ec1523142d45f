"""Corpora that the tests share: texts are tokenized once for each tokenizer."""

from pathlib import Path

import pytest

from tests.checkpoints import hub_checkpoint as hub_checkpoint
from tests.once import shared


@pytest.fixture(autouse=True)
def shared_corpora(isolated: None, tmp_path: Path) -> None:
    """Link the corpora of all tests into the test's own store."""
    home = tmp_path / "zoo-home"
    home.mkdir()
    (home / "corpora").symlink_to(shared("corpora"), target_is_directory=True)
