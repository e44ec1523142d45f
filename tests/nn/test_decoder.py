"""Decoders: positions of tokens, and incremental evaluation against that of the whole sequence."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.nn.making import IDS, MASK, SHAPE
from zoo.families.random_inputs import randomize_weights
from zoo.inference.generation.decoder import SessionDecoder
from zoo.nn.decoder import (
    CausalLM,
    CausalSequenceClassifier,
    last_token_index,
    position_ids_from_mask,
)
from zoo.nn.encoder_factory import make_blocks, make_embeddings, make_self_attention
from zoo.nn.transformer import PreNormBlock

CPU = torch.device("cpu")


def parts() -> Any:
    attention = partial(make_self_attention, SHAPE, causal=True)
    layers = make_blocks(SHAPE, PreNormBlock, attention=lambda _: attention())
    return {"embeddings": make_embeddings(SHAPE, norm=False), "layers": list(layers)}


def test_pre_norm_block_equals_its_formula() -> None:
    attention, x = nn.Linear(8, 8, bias=False), torch.randn(2, 3, 8)
    block = PreNormBlock(
        attention, hidden_size=8, intermediate_size=12, act="relu", layer_norm_eps=0.1, dropout=0.0
    )
    randomize_weights(block)

    def normed(y: Tensor, norm: Any) -> Tensor:
        centred = y - y.mean(-1, keepdim=True)
        root = (centred.square().mean(-1, keepdim=True) + 0.1).sqrt()
        scaled: Tensor = centred / root * norm.weight + norm.bias
        return scaled

    y = x + normed(x, block.attention_norm) @ attention.weight.T
    up = normed(y, block.ffn_norm) @ block.ffn.up.weight.T + block.ffn.up.bias
    expected = y + up.clamp(min=0) @ block.ffn.down.weight.T + block.ffn.down.bias
    assert torch.allclose(block(x), expected, atol=1e-5)


def test_position_ids_with_left_padding() -> None:
    assert position_ids_from_mask(None, 5, CPU).tolist() == [[0, 1, 2, 3, 4]]
    assert position_ids_from_mask(MASK, 5, CPU).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]
    right = torch.tensor([[1, 1, 0]])
    assert position_ids_from_mask(right, 3, CPU).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("mask", "pad", "expected"),
    [
        (None, None, [4, 4]),
        (None, 5, [3, 4]),
        (torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]), None, [2, 4]),
        (torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]), 3, [1, 4]),
    ],
)
def test_last_token_index(mask: Tensor | None, pad: int | None, expected: list[int]) -> None:
    assert last_token_index(IDS, mask, pad).tolist() == expected


def test_cached_decoding_equals_one_forward_pass() -> None:
    model = CausalLM(**parts()).double()
    randomize_weights(model)
    assert isinstance(model, SessionDecoder)
    whole = model(IDS, MASK)["logits"]
    logits, state = model.prefill({"input_ids": IDS[:, :3], "attention_mask": MASK[:, :3]}, 1)
    assert (logits - whole[:, 2]).abs().max() < 1e-12
    state.select(torch.tensor([1, 0]))  # rows can be permuted between steps
    for place in (3, 4):
        logits = model.step(IDS[:, place].flip(0), state).flip(0)
        assert (logits - whole[:, place]).abs().max() < 1e-12


def test_sequence_classifier_uses_the_last_token() -> None:
    model = CausalSequenceClassifier(**parts(), head=nn.Linear(8, 3)).double()
    model.pad_token_id = 9
    randomize_weights(model)
    vectors = model.encode(IDS, MASK)
    expected = model.apply_head(torch.stack([vectors[0, 4], vectors[1, 4]]))
    assert torch.equal(model(IDS, MASK)["logits"], expected)
    alone = model.encode(IDS[1:, :3])[0, 2]
    assert torch.allclose(model(IDS[1:, [0, 1, 2, 3, 3]])["logits"][0], model.apply_head(alone))
