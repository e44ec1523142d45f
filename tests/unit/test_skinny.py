"""The product for a few rows: what the ordinary one gives, with gradients left to that."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zoo.nn.skinny import SkinnyLinear, quicken, skinny_linear


@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (4,), (5,), (2, 2), (3, 1), (7, 3)], ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_it_is_the_ordinary_product(shape: tuple[int, ...], biased: bool) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(*shape, 40), torch.randn(70, 40), torch.randn(70)
    chosen = bias if biased else None
    expected = F.linear(x.double(), weight.double(), None if chosen is None else chosen.double())
    with torch.inference_mode():
        for columns in (None, weight.t().contiguous()):
            found = skinny_linear(x, weight, chosen, columns)
            assert found.shape == expected.shape and found.is_contiguous()
            assert (found - expected).abs().max() < 1e-4
        strided = weight.t().contiguous().t()
        assert (skinny_linear(x, strided, chosen) - expected).abs().max() < 1e-4


def test_a_quickened_model_keeps_its_parameters_and_its_gradients() -> None:
    model = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 5, bias=False))
    x, names = torch.randn(2, 8), dict(model.named_parameters())
    before = model(x)
    quicken(model)
    assert type(model[0]) is SkinnyLinear and type(model[1]) is nn.LayerNorm
    assert all(names[name] is value for name, value in model.named_parameters())
    model(x).sum().backward()
    assert names["0.weight"].grad is not None
    with torch.inference_mode():
        assert torch.allclose(model(x), before, atol=1e-6)
