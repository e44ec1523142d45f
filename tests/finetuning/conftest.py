"""Tiny checkpoints to fine-tune."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import Make, hub_checkpoint
from tests.inference.conftest import converted

__all__ = ["hub_checkpoint"]
Pretrained = Callable[..., tuple[Path, Path]]


@pytest.fixture
def pretrained(hub_checkpoint: Make, tmp_path: Path) -> Pretrained:
    """Return a function that makes a checkpoint; it returns ours and that of the Hub's layout.

    There is no dropout, unless it is given.
    """

    def make(architecture: str = "BertForMaskedLM", **changes: Any) -> tuple[Path, Path]:
        import torch
        import transformers

        dry = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        source = hub_checkpoint(architecture, **{**dry, **changes})
        kind = getattr(transformers, architecture)
        model = kind.from_pretrained(source)
        with torch.no_grad():  # random weights of this size train, unlike those of unit variance
            for parameter in model.parameters():
                parameter.mul_(0.2)
        model.save_pretrained(source)
        return converted(source, tmp_path / "pretrained").path, source

    return make
