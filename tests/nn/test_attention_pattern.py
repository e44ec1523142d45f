"""Layers that attend to a window of tokens or do not rotate, against masks by hand."""

import contextlib
from typing import Any

import pytest
import torch

from zoo.families.random_inputs import randomize_weights
from zoo.nn.attention.masks import mask_value
from zoo.nn.attention_pattern import AttentionPattern
from zoo.nn.kernels.local_attention import supports_causal_blocks
from zoo.nn.kernels.packed_attention import masks_only
from zoo.nn.local_blocks import RowBlocks
from zoo.nn.positions import AttentionInputs, Positions, Rotary, position_in_document
from zoo.plugins import get_family

TOKENS = 6
X = torch.zeros(1, TOKENS, 8)
IDS = torch.arange(TOKENS)[None]
POSITIONS = Positions(IDS, IDS)
ROTATION = Rotary(4)(IDS)


def allowed(inputs: AttentionInputs) -> list[str]:
    """Return a line for each query, with an ``x`` for each key that it attends to."""
    mask = inputs.mask
    assert isinstance(mask, torch.Tensor)
    rows = mask.expand(1, 1, TOKENS, TOKENS)[0, 0]
    return ["".join("x" if score == 0 else "." for score in row) for row in rows.tolist()]


def causal_mask() -> torch.Tensor:
    return torch.full((TOKENS, TOKENS), mask_value(X.dtype)).triu(1)[None, None]


def test_window_of_a_causal_model_ends_with_the_token() -> None:
    pattern = AttentionPattern([True, False], 3, causal=True)
    assert pattern.adds_bias
    local, full = pattern(X, AttentionInputs(causal_mask(), ROTATION), POSITIONS)
    assert allowed(local) == ["x.....", "xx....", "xxx...", ".xxx..", "..xxx.", "...xxx"]
    assert allowed(full) == ["x.....", "xx....", "xxx...", "xxxx..", "xxxxx.", "xxxxxx"]


def test_window_of_an_encoder_is_on_each_side() -> None:
    pattern = AttentionPattern([False, True], 1)
    assert not pattern.adds_bias
    padding = torch.zeros(1, 1, 1, TOKENS)
    padding[..., -1] = mask_value(X.dtype)
    full, local = pattern(X, AttentionInputs(padding, ROTATION), POSITIONS)
    assert allowed(local) == ["xx....", "xxx...", ".xxx..", "..xxx.", "...xx.", "....x."]
    assert full.mask is padding


def test_without_local_layers_the_mask_is_the_same() -> None:
    pattern = AttentionPattern([False, False], None, causal=True)
    assert not pattern.adds_bias
    inputs = AttentionInputs(causal_mask(), ROTATION)
    assert [layer.mask is inputs.mask for layer in pattern(X, inputs, POSITIONS)] == [True, True]


@pytest.mark.parametrize("has_own", [True, False])
def test_local_layers_may_rotate_by_another_base(has_own: bool) -> None:
    rotary = Rotary(4, 7.0) if has_own else None
    pattern = AttentionPattern([True, False], 2, causal=True, rotary=rotary)
    local, full = pattern(X, AttentionInputs(None, ROTATION), POSITIONS)
    assert local.rotation is not None
    expected = IDS[0, :, None] * torch.tensor([1.0, (7.0 if has_own else 10_000.0) ** -0.5])
    assert torch.allclose(local.rotation.cos[0, 0], expected.cos(), atol=1e-6)
    assert full.rotation is ROTATION


def test_some_layers_do_not_rotate() -> None:
    pattern = AttentionPattern([True, True, False], 2, rotates=[True, False, False])
    layers = pattern(X, AttentionInputs(None, ROTATION), POSITIONS)
    assert [layer.rotation is ROTATION for layer in layers] == [True, False, False]
    assert [layer.rotation is None for layer in layers] == [False, True, True]


LONG = 150
WINDOW = 16
CAUSAL_SEGMENTS = {
    "all": None,
    "padded on the left": [[0] * 40 + [1] * 110, [1] * 150],
    "padded on the right": [[1] * 110 + [0] * 40, [1] * 150],
    "documents": [[1] * 30 + [2] * 100 + [0] * 20, [1] * 140 + [2] * 10],
}


def mistral() -> Any:
    family: Any = get_family("llama")
    config = family.config_type(
        model_type="mistral",
        vocab_size=50,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        intermediate_size=40,
        max_positions=256,
        sliding_window=WINDOW,
    )
    model = family.model(config, "causal-lm").double().eval()
    randomize_weights(model)
    return model


@pytest.mark.parametrize("name", CAUSAL_SEGMENTS)
def test_causal_windows_in_blocks_equal_those_of_a_mask(name: str) -> None:
    """With gradients, in padded rows and in packed ones."""
    model = mistral()
    draw = torch.Generator().manual_seed(0)
    input_ids = torch.randint(0, 50, (2, LONG), generator=draw)
    inputs: dict[str, torch.Tensor] = {}
    real = torch.ones(2, LONG, 1)
    if CAUSAL_SEGMENTS[name] is not None:
        segments = torch.tensor(CAUSAL_SEGMENTS[name])
        real = (segments != 0)[..., None]
        inputs["attention_mask"] = segments
        if name == "documents":
            inputs = {"document_ids": segments, "position_ids": position_in_document(segments)}
    weight = torch.randn(2, LONG, 32, dtype=torch.double, generator=draw) * real
    results = []
    for context in (contextlib.nullcontext(), masks_only()):
        with context:
            hidden = model.encode(input_ids, **inputs)
        gradients = torch.autograd.grad((hidden * weight).sum(), list(model.parameters())[:4])
        results.append([hidden * real, *gradients])
    for ours, expected in zip(*results, strict=True):
        assert (ours - expected).abs().max() < 1e-11


def test_padding_within_a_row_and_a_cache_take_a_mask() -> None:
    x = torch.zeros(1, LONG, 8)
    places = torch.arange(LONG)[None]
    real = torch.ones(1, LONG, dtype=torch.int64)
    assert supports_causal_blocks(x, Positions(places, places, real), WINDOW)
    assert not supports_causal_blocks(x, Positions(places, places, real), LONG // 2)
    real[0, 60:70] = 0
    counted = (real.cumsum(1) - 1).clamp(min=0)
    assert not supports_causal_blocks(x, Positions(counted, counted, real), WINDOW)
    last = Positions(places[:, -1:], places)
    assert not supports_causal_blocks(x[:, -1:], last, WINDOW)


def test_causal_windows_of_all_layers_read_no_mask_of_all_pairs() -> None:
    """Each query has the keys of one block and a half, whatever the length of the row."""
    pattern = AttentionPattern([True, True], WINDOW, causal=True)
    x = torch.zeros(1, 1000, 8)
    places = torch.arange(1000)[None]
    positions = Positions(places, places)
    assert not pattern.needs_mask(x, positions)
    inputs = pattern(x, AttentionInputs(None), positions)
    assert isinstance(inputs[0].mask, RowBlocks)
    assert inputs[0].mask.mask.numel() <= 1.1 * 1000 * (32 + WINDOW)
    assert AttentionPattern([True, False], WINDOW, causal=True).needs_mask(x, positions)
