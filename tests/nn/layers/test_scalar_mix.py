"""The mix of layers against equation 1 of Peters et al. 2018, in float64."""

import math

import pytest
import torch

from zoo.nn.layers.scalar_mix import ScalarMix


def test_the_mix_is_equation_1() -> None:
    torch.manual_seed(0)
    layers = [torch.randn(2, 3, 4, dtype=torch.float64) for _ in range(3)]
    mix = ScalarMix(3).double()
    torch.testing.assert_close(mix(layers), sum(layers) / 3, rtol=0, atol=1e-12)
    weights, gamma = [0.3, -1.2, 2.0], 1.7
    assert mix.weights is not None and mix.gamma is not None
    mix.weights.data = torch.tensor(weights, dtype=torch.float64)
    mix.gamma.data.fill_(gamma)
    total = sum(math.exp(w) for w in weights)
    for row in range(2):
        for token in range(3):
            for unit in range(4):
                expected = gamma * sum(
                    math.exp(w) / total * float(layer[row, token, unit])
                    for w, layer in zip(weights, layers, strict=True)
                )
                assert abs(float(mix(layers).detach()[row, token, unit]) - expected) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("layer", [0, 1, -1])
def test_one_layer_alone(layer: int, dtype: torch.dtype) -> None:
    layers = [torch.randn(1, 2, 4, dtype=dtype) for _ in range(3)]
    mix = ScalarMix(3).to(dtype)
    mix.select(layer)
    assert torch.equal(mix(layers), layers[layer])
    assert [name for name, p in mix.named_parameters() if p.requires_grad] == ["gamma"]
    with pytest.raises(IndexError):
        mix.select(3)


def test_without_weights_the_mix_is_the_mean() -> None:
    layers = [torch.randn(1, 2, 3, dtype=torch.float64) for _ in range(4)]
    mix = ScalarMix(4, learned=False)
    assert not list(mix.parameters())
    torch.testing.assert_close(mix(layers), torch.stack(layers).mean(0), rtol=0, atol=1e-12)
