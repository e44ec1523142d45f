"""Layers that depend on token distance: relative position scores and convolutions."""

import pytest
import torch

from zoo.nn.layers.convolution import TokenConvolution
from zoo.nn.layers.relative import relative_shift

TEXTS = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 0], [1, 2, 2, 2, 2, 2, 3, 3]])


@pytest.mark.parametrize("past", [0, 3])
def test_relative_shift_equals_gathering(past: int) -> None:
    keys = past + 5
    content = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    # a column for each distance from 1 - keys to 5
    table = torch.randn(2, 4, 5 + keys, dtype=torch.float64)
    actual = relative_shift(content, table)
    assert actual.shape == (2, 3, 5, keys)
    for place in range(5):
        for other in range(keys):
            column = other - (past + place) + keys - 1
            expected = torch.einsum("hbd,hd->hb", content[:, :, place], table[..., column])
            assert torch.allclose(actual[:, :, place, other], expected)


@pytest.mark.parametrize(("kernel", "groups"), [(1, 1), (3, 2), (5, 1)])
def test_convolution_of_packed_rows(kernel: int, groups: int) -> None:
    convolution = TokenConvolution(4, kernel, groups).double()
    x = torch.randn(2, 8, 4, dtype=torch.float64)
    actual = convolution(x, TEXTS)
    weight, bias, half = convolution.weight, convolution.get_parameter("bias"), kernel // 2
    for row, place in ((row, place) for row in range(2) for place in range(8)):
        expected = bias.clone()
        for other in range(max(place - half, 0), min(place + half + 1, 8)):
            if TEXTS[row, other] == TEXTS[row, place]:
                mixed = weight[..., other - place + half]  # (4, 4 / groups)
                neighbour = (
                    x[row, other].view(groups, 1, -1).expand(-1, 4 // groups, -1).reshape(4, -1)
                )
                expected = expected + (mixed * neighbour).sum(-1)
        assert torch.allclose(actual[row, place], expected)
    alone = convolution(x[:1, :4])
    assert torch.allclose(actual[:1, :4], alone) and alone.shape == (1, 4, 4)
