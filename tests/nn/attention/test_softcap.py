"""Bounded scores and logits, compared with their formulas and with the reference library."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.families import parity
from tests.families.test_llama import CONFIGS, LLAMA
from zoo.conformance.hf_reference import reference_model
from zoo.families.random_inputs import random_inputs
from zoo.nn.attention.softcap import softcap, softcapped_attention
from zoo.nn.capture import capture
from zoo.nn.heads import VocabularyProjection
from zoo.objectives.losses.predictions import cross_entropy_sum


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def test_a_number_is_bounded_and_its_sign_stays() -> None:
    x = torch.tensor([-1000.0, -0.01, 0.0, 0.01, 1000.0], dtype=torch.float64)
    bounded = softcap(x, 5.0)
    assert bounded.tolist()[::4] == [-5.0, 5.0]
    assert torch.allclose(bounded[1:4], x[1:4], atol=1e-7)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_equals_its_formula(causal: bool, scale: float | None) -> None:
    q, k, v = (numbers(2, 3, 6, 8, seed=seed) * 3 for seed in range(3))
    mask = numbers(2, 1, 6, 6, seed=3)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * (8**-0.5 if scale is None else scale)
    scores = 0.5 * torch.tanh(scores / 0.5) + mask
    if causal:
        scores = scores + torch.full((6, 6), -torch.inf).triu(1)
    weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
    expected = torch.einsum("bhqk,bhkd->bhqd", weights, v)
    result = softcapped_attention(q, k, v, mask, is_causal=causal, scale=scale, cap=0.5)
    assert (result - expected).abs().max() <= 1e-12


def test_bounded_attention_is_captured() -> None:
    """Probabilities of every layer are the reference's."""
    config = CONFIGS["gemma2"]
    model = parity.random_model(LLAMA, config, "causal-lm")
    reference: Any = reference_model(LLAMA, config, "causal-lm", model.state_dict())
    inputs = random_inputs(LLAMA.onnx(config, "causal-lm"), config, (12,))
    with torch.no_grad(), capture(model, attention="all") as captured:
        model(**inputs)
        expected = reference(**inputs, output_attentions=True).attentions
    assert len(expected) == config.num_layers
    for number, probabilities in enumerate(expected):
        # The reference computes its softmax in float32.
        assert (captured.attention[number] - probabilities).abs().max() <= 1e-6


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_loss_of_bounded_logits_has_their_gradient(has_bias: bool) -> None:
    """The logits of some rows at a time, which are not kept for the backward pass."""
    hidden = numbers(7, 5).requires_grad_()
    weight = (numbers(11, 5, seed=1) * 2).requires_grad_()
    bias = numbers(11, seed=2).requires_grad_() if has_bias else None
    labels = torch.tensor([0, 3, -100, 10, 2, 2, 9])
    inputs = [tensor for tensor in (hidden, weight, bias) if tensor is not None]
    projection = VocabularyProjection(hidden, weight, bias, 1.5)
    loss = cross_entropy_sum(projection, labels, "loss").sums["loss"]
    ours = torch.autograd.grad(loss, inputs)
    logits = 1.5 * torch.tanh(torch.nn.functional.linear(hidden, weight, bias) / 1.5)
    assert torch.allclose(projection.logits(), logits, atol=1e-12)
    plain = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    assert abs(float(loss) - float(plain)) <= 1e-10
    for gradient, expected in zip(ours, torch.autograd.grad(plain, inputs), strict=True):
        assert (gradient - expected).abs().max() <= 1e-10
