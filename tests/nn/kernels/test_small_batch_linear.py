"""The linear map for few rows, compared with ``torch.nn.functional.linear``."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zoo.nn.kernels import onednn_linear
from zoo.nn.kernels.small_batch_linear import (
    SmallBatchLinear,
    optimize_for_inference,
    small_batch_linear,
)


@pytest.fixture(params=[False, True], ids=["mkl", "onednn"], autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn_linear, "is_faster", lambda: request.param)


SHAPES = [(1,), (3,), (4,), (5,), (2, 2), (6, 1), (15,), (16,)]


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("outputs", "inputs"), [(70, 40), (192, 768), (200, 768), (131, 800), (40, 3000)]
)
def test_small_batch_linear_equals_linear(biased: bool, outputs: int, inputs: int) -> None:
    torch.manual_seed(0)
    weight = torch.randn(outputs, inputs)
    strided = weight.t().contiguous().t()
    bias = torch.randn(outputs) if biased else None
    exact_bias = None if bias is None else bias.double()
    for shape in SHAPES:
        x = torch.randn(*shape, inputs)
        expected = F.linear(x.double(), weight.double(), exact_bias)
        with torch.inference_mode():
            actual = small_batch_linear(x, weight, bias)
            assert actual.shape == expected.shape, shape
            assert actual.is_contiguous(), shape
            assert (actual - expected).abs().max() <= 1e-5 * expected.abs().max(), shape
            assert (small_batch_linear(x, strided, bias) - expected).abs().max() < 1e-3, shape
            exact = small_batch_linear(x.double(), weight.double(), exact_bias)
            assert torch.equal(exact, expected), shape


def test_optimized_model_keeps_parameters_and_gradients() -> None:
    model = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 5, bias=False))
    x, names = torch.randn(2, 8), dict(model.named_parameters())
    before = model(x)
    optimize_for_inference(model)
    assert type(model[0]) is SmallBatchLinear and type(model[1]) is nn.LayerNorm
    assert [name for name, value in model.named_parameters() if names[name] is not value] == []
    model(x).sum().backward()
    assert names["0.weight"].grad is not None
    with torch.inference_mode():
        assert torch.allclose(model(x), before, atol=1e-6)


def test_small_batch_linear_of_views() -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(307, 768)[7:], torch.randn(10, 1536)[5:, 1::2]
    assert weight.storage_offset() and not x.is_contiguous()
    with torch.inference_mode():
        actual = small_batch_linear(x, weight)
    assert (actual - F.linear(x.double(), weight.double())).abs().max() < 1e-3
