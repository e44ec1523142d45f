"""Small models of architectures that several test modules use."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.tokenizers.trained import words
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir
from zoo_bart import Bart
from zoo_bart.config import BartConfig

# Fields of a small encoder-decoder, whose stacks differ in depth, heads and inner width.
SEQ2SEQ_SHAPE: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 48,
    "num_layers": 3,
    "num_heads": 3,
    "intermediate_size": 80,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 60,
    "max_positions": 64,
}


@pytest.fixture(scope="module")
def published_gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in the layout of the first GPT's release, with random weights, named ``hub``."""
    path = tmp_path_factory.mktemp("words") / "hub"
    path.mkdir()
    for name, content in zip(("vocab.json", "merges.txt"), words(), strict=True):
        (path / name).write_text(content, "utf-8")
    size = len(json.loads((path / "vocab.json").read_text("utf-8")))
    shape: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    model = transformers.OpenAIGPTLMHeadModel(
        transformers.OpenAIGPTConfig(vocab_size=size, **shape)
    )
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=0.25, generator=generator)
        if "ln_" in name and name.endswith("weight"):
            parameter.data += 1
    model.save_pretrained(path)
    convert(CheckpointDir(path, "test"), path.parent / "ours")
    return path


MBART = Bart()
SMALL_MBART = BartConfig(
    model_type="mbart",
    vocab_size=101,
    hidden_size=48,
    num_layers=2,
    num_heads=3,
    intermediate_size=80,
    decoder_layers=3,
    decoder_attention_heads=4,
    decoder_ffn_dim=60,
    max_positions=64,
    scale_embedding=True,
)
