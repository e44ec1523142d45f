"""Layers that attend to a window of tokens or do not rotate, against masks by hand."""

import pytest
import torch

from zoo.nn.attention.masks import mask_value
from zoo.nn.attention_pattern import AttentionPattern
from zoo.nn.positions import AttentionInputs, Positions, Rotary

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
