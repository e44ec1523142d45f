"""Encoder-decoder models whose outputs vary."""

from typing import Any

import torch
from msgspec.structs import replace

from zoo_t5 import T5
from zoo_t5.config import T5Config

FAMILY = T5()
SMALL = T5Config(
    vocab_size=61,
    hidden_size=32,
    head_size=10,
    intermediate_size=48,
    num_layers=3,
    num_decoder_layers=2,  # the reference's cache fails with more than the encoder's
    num_heads=4,
    num_buckets=8,
    max_distance=12,
)
LATER = replace(SMALL, feed_forward="gated-gelu", output_table=True, scale_outputs=False)
CONFIGS = {"plain": SMALL, "later": LATER}


# configuration -> seed, and a token that ends some of the texts
MADE = {"plain": (2, 56), "later": (2, 25)}


def made(name: str) -> tuple[Any, int]:
    """Return a model whose outputs vary, and a token that ends some of them."""
    seed, end = MADE[name]
    model: Any = FAMILY.model(CONFIGS[name], "seq2seq-lm").eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            scale = 0.3 if parameter.dim() == 1 else 1.5 * parameter.shape[-1] ** -0.5
            parameter.copy_(torch.empty(parameter.shape).normal_(generator=generator) * scale)
            if key.endswith("norm.weight"):
                parameter.add_(1)
        if name == "plain":  # tied embeddings would favour repetition
            model.embeddings.tokens.weight.mul_(0.5)
            model.decoder.final_norm.weight.mul_(12)
    return model, end
