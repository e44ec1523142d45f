"""Attention in blocks, compared with its formula in float64 and with torch's function."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.capture import capture
from zoo.nn.kernels import attention_blocks as blocks
from zoo.nn.kernels.attention import attend, attend_by_products
from zoo.nn.kernels.attention_blocks import (
    attend_in_blocks,
    can_use_blocks,
    row_blocks,
)
from zoo.plugins import get_family

SHAPE = 3, 4, 7, 5  # batch, heads, tokens, head_size


def operands(dtype: torch.dtype = torch.float64, keys: int = 7) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    batch, heads, tokens, size = SHAPE
    return [
        torch.randn(batch, length, heads, size, generator=draw, dtype=torch.float64)
        .to(dtype)
        .transpose(1, 2)
        .requires_grad_()
        for length in (tokens, keys, keys)
    ]


def formula(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, keep: Tensor | None = None
) -> Tensor:
    """Return the attention, of which ``keep`` are the factors of the weights."""
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * 0.3
    if mask is not None:
        scores = scores + mask
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).tril().bool(), -math.inf)
    weights = scores.softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", weights if keep is None else weights * keep, v)


def assert_same(value: Tensor, expected: Tensor, inputs: list[Tensor], bound: float) -> None:
    draw = torch.Generator().manual_seed(1)
    gradient = torch.randn(value.shape, generator=draw, dtype=torch.float64).to(value.dtype)
    gradients = torch.autograd.grad(value, inputs, gradient)
    references = torch.autograd.grad(expected, inputs, gradient)
    for result, other in zip((value, *gradients), (expected, *references), strict=True):
        assert result.shape == other.shape and result.dtype == other.dtype
        assert (result - other).norm() <= bound * other.norm()


@pytest.mark.parametrize("limit", [1, 60, 200, 400, 1 << 18], ids=lambda limit: f"limit {limit}")
@pytest.mark.parametrize("keys", [7, 3], ids=lambda keys: f"{keys} keys")
def test_outputs_and_gradients_equal_the_formula(
    limit: int, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One head, some heads, one row, some rows, all rows at once."""
    monkeypatch.setattr(blocks, "SCORES_AT_ONCE", limit)
    q, k, v = inputs = operands(keys=keys)
    for mask in (None, torch.randn(3, 1, 1, keys).double(), torch.randn(4, 7, keys).double()):
        for causal in (False, keys == 7):
            value = attend_in_blocks(q, k, v, row_blocks(q, k), mask=mask, causal=causal, scale=0.3)
            assert_same(value, formula(q, k, v, mask, causal), inputs, 1e-14)


@pytest.mark.parametrize(("limit", "count"), [(1, 12), (49, 12), (98, 6), (196, 3), (392, 2)])
def test_blocks_cover_each_head_of_each_row_once(
    limit: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "SCORES_AT_ONCE", limit)
    q, k, _ = operands()
    covered = torch.zeros(SHAPE[:3])
    of_rows = row_blocks(q, k)
    for block in of_rows:
        covered[block] += 1
    assert len(of_rows) == count and (covered == 1).all()


@pytest.mark.parametrize("limit", [49, 1 << 18])
def test_dropped_weights_count_in_neither_pass(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SCORES_AT_ONCE", limit)
    q, k, _ = operands()
    v = torch.eye(7, dtype=torch.float64).expand(3, 4, 7, 7).clone().requires_grad_()
    torch.manual_seed(0)
    value = attend_in_blocks(q, k, v, row_blocks(q, k), dropout=0.25, scale=0.3)
    keep = (value != 0).double() / 0.75  # with these values, the output is the weights
    assert 0.15 < (value == 0).double().mean() < 0.35
    assert_same(value, formula(q, k, v, None, False, keep), [q, k, v], 1e-14)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype, dropout: float) -> None:
    exact = operands()
    half = [tensor.detach().to(dtype).requires_grad_() for tensor in exact]
    gradient = torch.randn(SHAPE).double()
    results = []
    for inputs in (half, [tensor.detach().double().requires_grad_() for tensor in half]):
        q, k, v = inputs
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
            value = attend_in_blocks(q, k, v, row_blocks(q, k), dropout=dropout)
        assert value.dtype == q.dtype
        results.append([value, *torch.autograd.grad(value, inputs, gradient.to(q.dtype))])
    rounding = torch.finfo(dtype).eps
    for result, other in zip(*results, strict=True):
        assert (result.double() - other).norm() < rounding * other.norm()


def test_products_equal_the_formula() -> None:
    q, k, v = operands()
    mask = torch.randn(3, 1, 7, 7).double()
    for causal in (False, True):
        value = attend_by_products(q, k, v, mask, causal, 0.0, 0.3)
        assert_same(value, formula(q, k, v, mask, causal), [q, k, v], 1e-14)


def test_blocks_are_used_in_training_alone() -> None:
    q, k, v = operands(torch.float32)
    bias = torch.zeros(1, 1, 7, 7, requires_grad=True)
    assert can_use_blocks(q, k, v, dropout=0.1)
    assert not can_use_blocks(q, k, v, mask=bias, dropout=0.1)  # gets a gradient
    assert not can_use_blocks(q, k, v, dropout=1e-5)  # a probability for torch's dropout
    assert not can_use_blocks(*(tensor.detach() for tensor in (q, k, v)), dropout=0.1)
    with torch.no_grad():
        assert not can_use_blocks(q, k, v, dropout=0.1)
    assert _is_in_blocks(attend(q, k, v, None, dropout=0.1))
    half = [tensor.detach().bfloat16().requires_grad_() for tensor in (q, k, v)]
    assert _is_in_blocks(attend(half[0], half[1], half[2], None, dropout=0.1))
    assert not _is_in_blocks(attend(q, k, v, None))  # torch has a kernel
    assert not _is_in_blocks(attend(q, k, v, bias, dropout=0.1))


def _is_in_blocks(output: Tensor) -> bool:
    return "BlockAttention" in type(output.grad_fn).__name__


def test_captured_attention_is_one_call_of_the_kernel() -> None:
    family = get_family("bert")
    model: Any = family.model(family.sizes()["tiny"], "none").train()
    tokens = torch.randint(5, 100, (2, 6))
    with capture(model, attention=(0,)) as captured:
        model.encode(tokens)
    weights = captured.attention[0]
    assert weights.shape[2:] == (6, 6) and weights.requires_grad
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))


def test_a_masked_row_is_finite() -> None:
    q, k, v = inputs = operands(torch.float32)
    mask = torch.zeros(3, 1, 1, 7)
    mask[0] = torch.finfo(torch.float32).min / 2
    value = attend_in_blocks(q, k, v, row_blocks(q, k), mask=mask, dropout=0.1)
    gradients = torch.autograd.grad(value.sum(), inputs)
    for tensor in (value, *gradients):
        assert tensor.isfinite().all()
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(
        attend_in_blocks(q, k, v, row_blocks(q, k), mask=mask), expected, atol=1e-6, rtol=1e-5
    )
