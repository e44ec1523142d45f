"""Sizes and inputs of the blocks."""

from types import SimpleNamespace

import torch

SHAPE = SimpleNamespace(
    vocab_size=11,
    hidden_size=8,
    num_layers=2,
    num_heads=2,
    intermediate_size=12,
    max_positions=9,
    activation="gelu",
    dropout=0.0,
    attention_dropout=0.0,
    layer_norm_eps=1e-5,
)
IDS = torch.tensor([[0, 0, 3, 4, 5], [6, 7, 8, 9, 10]])
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
