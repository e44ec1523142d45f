"""Blocks, compared with explicit formulas."""

import math
from typing import get_args

import pytest
import torch
from torch.nn import functional
from transformers.activations import ACT2CLS, get_activation

from zoo.families.config import Activation
from zoo.families.random_inputs import randomize_weights
from zoo.nn.encoder import padding_mask
from zoo.nn.heads import MLMHead
from zoo.nn.kernels.attention import HALF_PRECISION_TOKENS, attend
from zoo.nn.layers.activations import ACTIVATIONS, activate, activation
from zoo.nn.layers.highway import Highway
from zoo.nn.transformer import Embeddings, SelfAttention

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", FLOATS)
def test_padding_mask(dtype: torch.dtype) -> None:
    mask = padding_mask(torch.tensor([[1, 1, 0], [0, 0, 0]]), dtype)
    assert mask is not None and mask.shape == (2, 1, 1, 3) and mask.dtype is dtype
    scores = torch.tensor([-500.0, 3.0, 500.0], dtype=dtype) + mask
    assert scores.isfinite().all()
    weights = scores.softmax(-1)
    assert weights[0, 0, 0, 2] == 0 and weights[0].sum() == 1
    assert weights[1].isfinite().all()


def test_padding_mask_of_none() -> None:
    assert padding_mask(None, torch.float32) is None


def test_attention_equals_its_formula() -> None:
    attention = SelfAttention(hidden_size=12, num_heads=3, dropout=0.0).double()
    randomize_weights(attention)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    mask = padding_mask(torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]), x.dtype)
    assert mask is not None
    q, k, v = (attention.qkv(x)[..., n * 12 : n * 12 + 12] for n in range(3))
    mixed = torch.zeros_like(x)
    for head in range(3):
        part = slice(head * 4, head * 4 + 4)
        scores = q[..., part] @ k[..., part].mT / math.sqrt(4) + mask[:, 0]
        mixed[..., part] = scores.softmax(-1) @ v[..., part]
    expected = attention.out(mixed)
    assert (attention(x, mask) - expected).abs().max() < 1e-12


@pytest.mark.parametrize("tokens", [16, 600])  # by single products, and by the kernel
@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_half_precision_is_that_of_the_kernel(tokens: int, causal: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    exact = [torch.randn(2, 2, tokens, 8, generator=draw).requires_grad_() for _ in range(3)]
    half = [tensor.detach().bfloat16().requires_grad_() for tensor in exact]
    q, k, v = half
    output = attend(q, k, v, None, causal=causal)
    expected = functional.scaled_dot_product_attention(
        exact[0], exact[1], exact[2], is_causal=causal
    )
    uses_kernel = "ScaledDotProduct" in type(output.grad_fn).__name__
    assert uses_kernel == (tokens > HALF_PRECISION_TOKENS)
    assert output.dtype == torch.bfloat16
    gradients = torch.autograd.grad(output.float().square().sum(), half)
    references = torch.autograd.grad(expected.square().sum(), exact)
    for value, reference in zip([output, *gradients], [expected, *references], strict=True):
        assert (value.float() - reference).norm() < 0.02 * reference.norm()
    with torch.no_grad():
        kernel = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        assert torch.equal(attend(q, k, v, None, causal=causal), kernel)


def test_outputs_do_not_depend_on_padding_tokens() -> None:
    attention = SelfAttention(hidden_size=8, num_heads=2, dropout=0.0)
    x = torch.randn(1, 6, 8)
    mask = padding_mask(torch.tensor([[1, 1, 1, 1, 0, 0]]), x.dtype)
    other = x.clone()
    other[:, 4:] = 1e4
    assert torch.equal(attention(x, mask)[:, :4], attention(other, mask)[:, :4])


@pytest.mark.parametrize(
    ("name", "at_one"),
    [
        ("gelu", 0.5 * (1 + math.erf(1 / math.sqrt(2)))),
        ("gelu_new", 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * 1.044715))),
        ("gelu_pytorch_tanh", 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * 1.044715))),
        ("relu", 1.0),
        ("silu", 1 / (1 + math.exp(-1))),
        ("tanh", math.tanh(1)),
    ],
)
def test_activations_equal_their_formulas(name: str, at_one: float) -> None:
    function = activation(name)
    assert abs(function(torch.ones(1, dtype=torch.float64)).item() - at_one) < 1e-15
    assert abs(function(torch.zeros(1, dtype=torch.float64)).item()) == 0


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_equal_those_of_transformers(name: str) -> None:
    x = torch.linspace(-12, 12, 97)
    expected = get_activation(name)(x)
    assert torch.allclose(activation(name)(x), expected, atol=2e-6)
    with torch.no_grad():
        assert torch.allclose(activate(activation(name), x.clone()), expected, atol=2e-6)


def test_every_activation_without_parameters_is_known() -> None:
    assert set(ACTIVATIONS) == set(ACT2CLS) - {"prelu", "xielu"}
    assert set(get_args(Activation)) == set(ACTIVATIONS)


def test_unknown_activation() -> None:
    with pytest.raises(ValueError, match="'swiglu' is not one of gelu, "):
        activation("swiglu")


def test_embeddings_equal_their_formula() -> None:
    embeddings = Embeddings(
        vocab_size=9,
        max_positions=6,
        type_vocab_size=2,
        hidden_size=4,
        layer_norm_eps=1e-3,
        dropout=0.0,
    ).double()
    randomize_weights(embeddings)
    assert embeddings.types is not None and embeddings.norm is not None
    ids, types = torch.tensor([[3, 8, 3]]), torch.tensor([[0, 1, 1]])
    x = embeddings.tokens.weight[ids] + embeddings.types.weight[types]
    x = x + embeddings.positions.weight[torch.arange(3)]
    x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + 1e-3).sqrt()
    expected = x * embeddings.norm.weight + embeddings.norm.bias
    assert (embeddings(ids, types) - expected).abs().max() < 1e-12


def test_too_long_input_is_an_error() -> None:
    embeddings = Embeddings(
        vocab_size=9,
        max_positions=6,
        type_vocab_size=2,
        hidden_size=4,
        layer_norm_eps=1e-3,
        dropout=0.0,
    )
    with pytest.raises(RuntimeError):
        embeddings(torch.zeros(1, 7, dtype=torch.int64))


@pytest.mark.parametrize("tied", [True, False])
def test_output_embeddings_of_the_mlm_head(tied: bool) -> None:
    head = MLMHead(hidden_size=4, vocab_size=9, act="relu", layer_norm_eps=1e-3, tied=tied)
    embeddings = torch.nn.Embedding(9, 4)
    hidden = torch.randn(2, 3, 4)
    with torch.no_grad():
        before = head(hidden, embeddings)
        embeddings.weight.mul_(2)
        after = head(hidden, embeddings)
    assert before.shape == (2, 3, 9)
    assert torch.equal(after, 2 * before) if tied else torch.equal(after, before)


def test_highway_equals_its_formula() -> None:
    layer, x = Highway(5).double(), torch.randn(2, 3, 5, dtype=torch.float64)
    randomize_weights(layer)
    gate = 1 / (1 + (-(x @ layer.carry.weight.T + layer.carry.bias)).exp())
    new = (x @ layer.transform.weight.T + layer.transform.bias).clamp(min=0)
    assert torch.allclose(layer(x), gate * new + (1 - gate) * x)
