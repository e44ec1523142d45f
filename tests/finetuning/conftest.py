"""Tiny checkpoints to fine-tune."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import Make, hub_checkpoint, shrink
from tests.inference.conftest import converted

__all__ = ["hub_checkpoint"]
Pretrained = Callable[..., tuple[Path, Path]]


@pytest.fixture
def pretrained(hub_checkpoint: Make, tmp_path: Path) -> Pretrained:
    """Return a function that makes a checkpoint; it returns ours and that of the Hub's layout.

    There is no dropout, unless it is given.
    """

    def make(architecture: str = "BertForMaskedLM", **changes: Any) -> tuple[Path, Path]:
        dry = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        source = hub_checkpoint(architecture, **{**dry, **changes})
        # random weights of this size train, unlike those of unit variance
        shrink(source / "model.safetensors", 0.2)
        return converted(source, tmp_path / "pretrained").path, source

    return make
