from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.checkpoints import SMALL, Make, byte_level_roberta, hub_checkpoint
from tests.tokenizers.trained import END, byte_level
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.convert import convert
from zoo.hub.source import CheckpointDir

__all__ = ["Small", "hub_checkpoint", "small"]
Small = Callable[..., Checkpoint]


@pytest.fixture
def small(hub_checkpoint: Make, tmp_path: Path) -> Small:
    """Return a function from a class of transformers to a converted model with a tokenizer."""

    def make(architecture: str, **changes: Any) -> Checkpoint:
        if "Roberta" in architecture:
            source = byte_level_roberta(hub_checkpoint, architecture, **changes)
        elif "GPT" in architecture:
            source = _gpt(hub_checkpoint, architecture, **changes)
        else:
            source = hub_checkpoint(architecture, **changes)
        _shrink(source / "model.safetensors")
        convert(CheckpointDir(source, "source"), tmp_path / "model")
        return load_checkpoint(tmp_path / "model")

    return make


def _shrink(path: Path) -> None:
    """Bring weights to the size of trained ones: rounding is an error relative to them."""
    tensors = load_file(path)
    save_file({name: tensor * 0.2 for name, tensor in tensors.items()}, path, {"format": "pt"})


def _gpt(make: Make, architecture: str, **changes: Any) -> Path:
    """Write a GPT-2 with a byte-level tokenizer."""
    vocabulary, merges = byte_level((END,))
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": SMALL[POSITIONS]}
    size = vocabulary.count(":")
    path = make(architecture, tokenizer=False, **{**shape, "vocab_size": size, **changes})
    (path / "vocab.json").write_text(vocabulary)
    (path / "merges.txt").write_text(merges)
    return path


POSITIONS = "max_position_embeddings"
