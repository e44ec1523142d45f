"""Dropout: its distribution, gradient and generator, and attention with it."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zoo.nn.kernels.attention import attend
from zoo.nn.kernels.dropout import dropout, keep_mask
from zoo.nn.layers.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.004, 0.9])
def test_the_share_and_the_mean(p: float) -> None:
    torch.manual_seed(0)
    count = 400_000
    out = dropout(torch.full((count,), 2.0), p)
    share = (out == 0).double().mean().item()
    assert abs(share - p) < 5 * math.sqrt(p * (1 - p) / count)
    assert len(set(out.tolist())) == 2  # zero and one other value
    exact = 1 - round(p * 65536) / 65536
    assert out.max().item() == pytest.approx(2 / exact, rel=1e-6)
    mean_error = 2 * math.sqrt(p / (1 - p) / count)
    assert abs(out.double().mean().item() - 2) < 5 * mean_error


def test_neighbours_are_independent() -> None:
    torch.manual_seed(0)
    mask = keep_mask(torch.empty(400_000), 0.5).double() - 0.5
    for distance in (1, 2, 3, 4, 8):  # four values share a random number
        correlation = (mask[distance:] * mask[:-distance]).mean().item() * 4
        assert abs(correlation) < 5 / math.sqrt(len(mask))


def test_the_gradient_and_the_generator() -> None:
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(3)
    out = dropout(x, 0.25)
    torch.manual_seed(3)
    mask = keep_mask(x, 0.25)
    assert 0 < mask.sum() < mask.numel()
    torch.testing.assert_close(out, x * mask / 0.75)
    weights = torch.randn_like(x)
    torch.autograd.backward((out * weights).sum())
    torch.testing.assert_close(x.grad, weights * mask / 0.75)


def test_module_and_probabilities_at_the_ends() -> None:
    x = torch.randn(50)
    module = Dropout(0.5)
    assert isinstance(module, nn.Dropout)
    assert (module(x) == 0).any()
    assert module.eval()(x) is x
    assert dropout(x, 0.0) is x
    assert not dropout(x, 1.0).any()
    assert (dropout(torch.ones(100_000), 1e-5) > 0).float().mean() > 0.999  # torch's own


@pytest.mark.parametrize("causal", [False, True])
def test_attention_drops_probabilities(causal: bool) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 6, 4, dtype=torch.float64) for _ in range(3))
    mask = None if causal else torch.randn(2, 1, 6, 6, dtype=torch.float64)
    torch.manual_seed(1)
    out = attend(q, k, v, mask, causal=causal, dropout=0.25, scale=0.7)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * 0.7
    if mask is not None:
        scores += mask
    if causal:
        scores[..., ~torch.ones(6, 6, dtype=torch.bool).tril()] = -torch.inf
    probabilities = scores.softmax(-1)
    torch.manual_seed(1)
    dropped = keep_mask(probabilities, 0.25)
    expected = torch.einsum("bhqk,bhkd->bhqd", probabilities * dropped / 0.75, v)
    torch.testing.assert_close(out, expected)
    without = attend(q, k, v, mask, causal=causal, scale=0.7)
    reference = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=0.7)
    torch.testing.assert_close(without, reference)
