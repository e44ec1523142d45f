"""Tiny random models of every kind that is evaluated, beside the reference's own classes."""

from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import Make, hub_checkpoint
from tests.inference.conftest import Small, small
from tests.tasks.causal_lm.making import MakeSource, source
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.inference import load_session

__all__ = ["Make", "Small", "hub_checkpoint", "small", "source"]


@pytest.fixture
def causal(source: MakeSource) -> tuple[Model, Any, Any]:
    """A causal model, and the reference's model and tokenizer with the same weights."""
    import transformers

    checkpoint = load_checkpoint(source())
    hub: Path = checkpoint.path.parent / "hub"
    reference: Any = transformers.GPT2LMHeadModel.from_pretrained(hub)
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub)
    return Model(checkpoint, load_session(checkpoint, "cpu")), reference.eval(), tokenizer
