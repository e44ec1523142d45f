import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import SMALL, Make, byte_level_roberta, hub_checkpoint, shrink
from tests.tokenizers.trained import BRACKETS, END, byte_level, pieces
from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir

__all__ = ["Small", "hub_checkpoint", "small"]
Small = Callable[..., Checkpoint]


@pytest.fixture
def small(hub_checkpoint: Make, tmp_path: Path) -> Small:
    """Return a function from a class of transformers to a converted model with a tokenizer."""

    def make(architecture: str, **changes: Any) -> Checkpoint:
        if "XLM" in architecture or "T5" in architecture:
            source = _sentencepiece(hub_checkpoint, architecture, **changes)
        elif "ModernBert" in architecture:
            shape = {"local_attention": 8, "num_hidden_layers": 4}
            source = _modern(hub_checkpoint, architecture, **{**shape, **changes})
        elif "EuroBert" in architecture:
            source = _modern(hub_checkpoint, architecture, **changes)
        elif "Roberta" in architecture:
            source = byte_level_roberta(hub_checkpoint, architecture, **changes)
        elif "GPT" in architecture:
            source = _gpt(hub_checkpoint, architecture, **changes)
        else:
            source = hub_checkpoint(architecture, **changes)
        # rounding is an error relative to weights, of the size of trained ones
        shrink(source / "model.safetensors", 0.2)
        convert(CheckpointDir(source, "source"), tmp_path / "model")
        return load_checkpoint(tmp_path / "model")

    return make


def _gpt(make: Make, architecture: str, **changes: Any) -> Path:
    """Write a GPT-2 with a byte-level tokenizer."""
    vocabulary, merges = byte_level((END,))
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": SMALL[POSITIONS]}
    size = vocabulary.count(":")
    path = make(architecture, tokenizer=False, **{**shape, "vocab_size": size, **changes})
    (path / "vocab.json").write_text(vocabulary)
    (path / "merges.txt").write_text(merges)
    return path


def _sentencepiece(make: Make, architecture: str, **changes: Any) -> Path:
    """Write an XLM-RoBERTa or a T5 with a unigram tokenizer."""
    content = pieces()
    if "XLM" in architecture:
        shape: dict[str, Any] = {"type_vocab_size": 1, "vocab_size": 702, "pad_token_id": 1}
        name = "sentencepiece.bpe.model"
    else:
        shape = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
        shape |= {"vocab_size": 800}
        name = "spiece.model"
    path = make(architecture, tokenizer=False, **{**shape, **changes})
    (path / name).write_bytes(content)
    return path


def _modern(make: Make, architecture: str, **changes: Any) -> Path:
    """Write a model with a byte-level tokenizer that puts special tokens around texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    vocabulary, merges = byte_level(BRACKETS)
    ids = json.loads(vocabulary)
    pairs = [(a, b) for a, b in (line.split(" ") for line in merges.splitlines()[1:])]
    tokenizer = Tokenizer(models.BPE(ids, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(BRACKETS))
    ends = [("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=ends
    )
    shape = {"vocab_size": len(ids), "pad_token_id": ids["[PAD]"]}
    path = make(architecture, tokenizer=False, **{**shape, **changes})
    tokenizer.save(str(path / "tokenizer.json"))
    return path


POSITIONS = "max_position_embeddings"
