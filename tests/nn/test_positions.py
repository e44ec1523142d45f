"""Rotary embeddings and linear biases against transformers, and in decoding with a cache."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as turn_interleaved
from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from tests.nn.making import IDS, MASK, SHAPE
from zoo.families.random_inputs import randomize_weights
from zoo.nn.attention_pattern import AttentionPattern
from zoo.nn.decoder import CausalLM, make_causal_blocks
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import make_blocks, make_embeddings
from zoo.nn.kv_cache import KeyValueCache
from zoo.nn.positions import (
    LinearBias,
    Positions,
    Rotary,
    alibi_slopes,
    position_in_document,
)
from zoo.nn.transformer import ParallelBlock, PreNormBlock

POSITIONS = torch.tensor([[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]])
QUERIES, KEYS = torch.randn(2, 2, 3, 5, 8, generator=torch.Generator().manual_seed(0))


def test_halves_are_rotated_as_in_transformers() -> None:
    config = LlamaConfig(hidden_size=24, num_attention_heads=3)
    cos, sin = LlamaRotaryEmbedding(config)(QUERIES, POSITIONS)
    expected = apply_rotary_pos_emb(QUERIES, KEYS, cos, sin)
    rotation = Rotary(8)(POSITIONS)
    assert torch.allclose(rotation.apply(QUERIES), expected[0], atol=1e-6)
    assert torch.allclose(rotation.apply(KEYS), expected[1], atol=1e-6)


def test_neighbours_are_rotated_as_in_transformers() -> None:
    sin, cos = create_sinusoidal_positions(5, 8)[POSITIONS].chunk(2, dim=-1)
    expected = turn_interleaved(QUERIES.transpose(1, 2), sin, cos).transpose(1, 2)
    rotation = Rotary(8, interleaved=True)(POSITIONS)
    assert torch.allclose(rotation.apply(QUERIES), expected, atol=1e-6)


def test_components_beyond_the_width_stay() -> None:
    turned = Rotary(4)(POSITIONS).apply(QUERIES)
    assert torch.equal(turned[..., 4:], QUERIES[..., 4:])
    assert not torch.equal(turned[1, :, 3, :4], QUERIES[1, :, 3, :4])


def test_scores_of_rotated_vectors_depend_on_the_distance_alone() -> None:
    rotary = Rotary(8)
    near, far = (rotary(POSITIONS[:1] + shift) for shift in (0, 1000))
    scores = [r.apply(QUERIES) @ r.apply(KEYS).transpose(-1, -2) for r in (near, far)]
    assert torch.allclose(scores[0], scores[1], atol=2e-3)


@pytest.mark.parametrize("heads", [1, 4, 6, 12])
def test_linear_biases_equal_those_of_transformers(heads: int) -> None:
    mask = torch.ones(1, 7, dtype=torch.long)
    expected = build_alibi_tensor(mask, heads, torch.float64).view(1, heads, 1, 7)
    positions = torch.arange(7)[None]
    bias = LinearBias(heads)(Positions(positions, positions), torch.float64)
    assert torch.allclose(bias, expected, atol=0, rtol=1e-6)
    assert len(alibi_slopes(heads)) == heads


# What attention reads in addition to the hidden states -> the part of a decoder that computes it.
PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "rotary": lambda: {"rotary": Rotary(4)},
    "relative_bias": lambda: {"relative_bias": LinearBias(2)},
    "window": lambda: {
        "rotary": Rotary(4),
        "pattern": AttentionPattern([True, False], 2, causal=True, rotary=Rotary(4, 5.0)),
    },
    "rotates": lambda: {
        "rotary": Rotary(4),
        "pattern": AttentionPattern([False, False], None, causal=True, rotates=[True, False]),
    },
}


def model(part: str) -> Any:
    layers = make_causal_blocks(SHAPE, ParallelBlock)
    embeddings = make_embeddings(SHAPE, norm=False, positions=False)
    built = CausalLM(embeddings, layers, **PARTS[part]()).double().eval()
    randomize_weights(built)
    return built


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("mask", [None, MASK])
def test_decoding_with_a_cache_equals_the_whole_sequence(part: str, mask: Tensor | None) -> None:
    decoder, cache = model(part), KeyValueCache(SHAPE.num_layers)
    whole = decoder.encode(IDS, mask)
    pieces = []
    for start, end in ((0, 3), (3, 4), (4, 5)):
        seen = None if mask is None else mask[:, :end]
        pieces.append(decoder.encode(IDS[:, start:end], seen, cache=cache))
    real = torch.ones_like(IDS).bool() if mask is None else mask.bool()
    assert torch.allclose(torch.cat(pieces, 1)[real], whole[real], atol=1e-12)


@pytest.mark.parametrize("part", PARTS)
def test_documents_of_a_packed_row_are_those_alone(part: str) -> None:
    decoder = model(part)
    ids = torch.cat([IDS[1:, :3], IDS[1:]], dim=1)
    documents = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 2]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4]])
    packed = decoder.encode(ids, position_ids=positions, document_ids=documents)
    assert torch.allclose(packed[:, 3:], decoder.encode(IDS[1:]), atol=1e-12)


def test_parallel_block_equals_its_formula() -> None:
    attention, x = nn.Linear(8, 8, bias=False), torch.randn(2, 3, 8)
    block = ParallelBlock(
        attention, hidden_size=8, intermediate_size=12, act="relu", layer_norm_eps=0.1, dropout=0.0
    )
    randomize_weights(block)
    expected = x + attention(block.attention_norm(x)) + block.ffn(block.ffn_norm(x))
    assert torch.allclose(block(x), expected, atol=1e-6)


def test_blocks_without_biases_have_none() -> None:
    blocks = make_blocks(SHAPE, PreNormBlock, attention=lambda _: nn.Identity(), bias=False)
    encoder = Encoder(make_embeddings(SHAPE), blocks)
    names = [name for name, _ in encoder.layers.named_parameters()]
    assert not [name for name in names if name.endswith("bias")]


def test_positions_begin_anew_in_each_document() -> None:
    documents = torch.tensor([[1, 1, 2, 2, 2, 0, 0], [1, 1, 1, 1, 1, 1, 2]])
    expected = [[0, 1, 0, 1, 2, 0, 1], [0, 1, 2, 3, 4, 5, 0]]
    assert position_in_document(documents).tolist() == expected
