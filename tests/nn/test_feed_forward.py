"""Feed-forward networks against the formulas of Shazeer 2020 (arXiv:2002.05202)."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from zoo.nn.encoder_factory import make_blocks
from zoo.nn.transformer import (
    GEGLU,
    GLU,
    Bilinear,
    FeedForward,
    GatedFeedForward,
    PreNormBlock,
    ReGLU,
    SwiGLU,
)

SIZES = {"hidden_size": 4, "intermediate_size": 6}
FORMULAS: dict[type[GatedFeedForward], Callable[[Tensor], Tensor]] = {
    GLU: lambda x: 1 / (1 + torch.exp(-x)),
    Bilinear: lambda x: x,
    ReGLU: lambda x: x.clamp(min=0),
    GEGLU: lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    SwiGLU: lambda x: x / (1 + torch.exp(-x)),
}
CONFIG = SimpleNamespace(**SIZES, num_layers=1, layer_norm_eps=1e-5, dropout=0.0)


@pytest.mark.parametrize("kind", FORMULAS)
@pytest.mark.parametrize("trained", [False, True])
def test_a_gate_equals_its_formula(kind: type[GatedFeedForward], trained: bool) -> None:
    network = kind(**SIZES, bias=False).double()
    x, weight = torch.randn(3, 4, dtype=torch.float64), network.up.weight
    expected = FORMULAS[kind](x @ weight[:6].T) * (x @ weight[6:].T) @ network.down.weight.T
    with torch.set_grad_enabled(trained):
        torch.testing.assert_close(network(x), expected, rtol=0, atol=1e-12)
    assert [name for name, _ in network.named_parameters() if name.endswith("bias")] == []


def test_dropout_is_before_the_last_map() -> None:
    network = SwiGLU(**SIZES, dropout=1.0).train()
    assert torch.equal(network(torch.randn(2, 4)), network.down.bias.expand(2, 4))


def test_a_block_takes_its_network_from_a_configuration_without_an_activation() -> None:
    (block,) = make_blocks(CONFIG, PreNormBlock, attention=lambda _: nn.Identity(), ffn_type=SwiGLU)
    x = torch.randn(2, 3, 4)
    added = x + block.attention_norm(x)
    torch.testing.assert_close(block(x), added + block.ffn(block.ffn_norm(added)))


def test_an_activation_function_is_given_once() -> None:
    """A configuration that names one has no network with another, and the first has no default."""
    both = SimpleNamespace(**vars(CONFIG), activation="relu")
    with pytest.raises(TypeError, match="act"):
        make_blocks(both, attention=lambda _: nn.Identity(), ffn_type=SwiGLU)
    with pytest.raises(TypeError, match="act"):
        make_blocks(CONFIG, attention=lambda _: nn.Identity(), ffn_type=FeedForward)
