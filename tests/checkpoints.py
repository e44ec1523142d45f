"""Tiny checkpoints, written by transformers."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.once import shared

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "##a", "##b"]
SMALL = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}

Make = Callable[..., Path]


@pytest.fixture
def hub_checkpoint(tmp_path: Path) -> Make:
    """Return a function that writes a checkpoint in the Hub's layout.

    Its arguments are a class name, a directory name, ``True`` to add a tokenizer, the dtype, and
    changes to the configuration. All tensors are random.
    """

    def make(
        architecture: str = "BertForPreTraining",
        name: str = "source",
        tokenizer: bool = True,
        dtype: str = "float32",
        **changes: Any,
    ) -> Path:
        _write_random(architecture, dtype, {**SMALL, **changes}, tmp_path / name)
        if tokenizer:
            (tmp_path / name / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
        return tmp_path / name

    return make


_written: dict[str, tuple[Path, Any]] = {}  # checkpoints of this process, and the random state then


def _write_random(architecture: str, dtype: str, config: dict[str, Any], target: Path) -> None:
    """Write a model with random tensors, or copy the one that an earlier test has written."""
    import torch
    import transformers

    key = repr((architecture, dtype, config))
    if key not in _written:
        torch.manual_seed(len(architecture))
        kind = getattr(transformers, architecture)
        model = kind(kind.config_class(**config))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        kept = shared("hub-checkpoints") / f"{os.getpid()}-{len(_written)}"
        model.to(getattr(torch, dtype)).save_pretrained(kept)
        _written[key] = kept, torch.get_rng_state()
    kept, state = _written[key]
    torch.set_rng_state(state)
    shutil.copytree(kept, target, dirs_exist_ok=True)


def shrink(path: Path, factor: float) -> None:
    """Multiply all tensors of a safetensors file."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    save_file({name: tensor * factor for name, tensor in tensors.items()}, path, {"format": "pt"})


def byte_level_roberta(make: Make, architecture: str, **changes: Any) -> Path:
    """Write a RoBERTa with a byte-level tokenizer, to which spaces are parts of tokens."""
    from tests.tokenizers.trained import byte_level

    vocabulary, merges = byte_level()
    size = len(json.loads(vocabulary))
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "type_vocab_size": 1}
    path = make(architecture, tokenizer=False, **{"vocab_size": size, **ids, **changes})
    (path / "vocab.json").write_text(vocabulary)
    (path / "merges.txt").write_text(merges)
    return path
