"""8-bit linear maps against their formula in float64, and models with them against float32."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.inference.making import make_checkpoint
from zoo.errors import UsageError
from zoo.exporting.session import open_session
from zoo.inference import load_session
from zoo.nn.kernels.int8_linear import Int8Linear, largest_weight, quantize_linear_maps
from zoo.plugins import get_family


def by_hand(x: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
    """255 steps from the lowest input of a row, or 0, to its largest; weights of 8 or 7 bits."""
    x = x.double()
    low = x.amin(dim=-1, keepdim=True).clamp_max(0)
    scale = (x.amax(dim=-1, keepdim=True).clamp_min(0) - low) / 255
    inputs = low + scale * ((x - low) / scale).round()
    scales = linear.weight.double().abs().amax(dim=1, keepdim=True) / largest_weight()
    weights = (linear.weight.double() / scales).round() * scales
    return inputs @ weights.T + linear.bias.double()


def test_the_formula_in_float64() -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(96, 40), torch.randn(3, 7, 96) + 0.3
    linear.weight.data[3] *= 50  # a row of another scale costs the others nothing
    expected = by_hand(x, linear)
    exact = linear(x)
    model = nn.Sequential(linear).requires_grad_(False)
    quantize_linear_maps(model)
    assert isinstance(model[0], Int8Linear)
    torch.testing.assert_close(model(x).double(), expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(model(x), exact, atol=1e-4)  # it does quantize
    scales = exact.abs().amax(dim=(0, 1))
    assert ((model(x) - exact).abs().amax(dim=(0, 1)) / scales).max() < 0.03


def test_rows_do_not_depend_on_each_other() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 8)).requires_grad_(False)
    quantize_linear_maps(model)
    x = torch.randn(5, 32) * torch.tensor([[1e-3], [1.0], [1e3], [0.0], [1.0]])
    x[4, 7] = torch.nan
    together, one_by_one = model(x), torch.cat([model(row[None]) for row in x])
    # the library adds the lowest numbers of one row in another order than those of several
    torch.testing.assert_close(together, one_by_one, rtol=1e-6, atol=1e-9, equal_nan=True)
    assert together.isfinite().all(1).tolist() == [True] * 4 + [False]


def test_rows_of_one_sign_use_all_steps() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(256, 64)
    model = nn.Sequential(linear).requires_grad_(False)
    x = nn.functional.gelu(3 * torch.randn(50, 256))  # from -0.17 to about 10
    # the same with 127 steps on each side of 0, in float64
    scale = x.double().abs().amax(1, keepdim=True) / 127
    symmetric = scale * (x.double() / scale).round()
    scales = linear.weight.double().abs().amax(1, keepdim=True) / largest_weight()
    weights = (linear.weight.double() / scales).round() * scales
    products = symmetric @ weights.T + linear.bias.double()
    exact = linear(x).double()
    quantize_linear_maps(model)
    assert (model(x) - exact).square().mean() < 0.7 * (products - exact).square().mean()


@pytest.mark.parametrize("level", [-1e6, -3.0, 0.25, 1e6])
def test_rows_of_almost_equal_numbers(level: float) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 16)
    x = level * (1 + 1e-7 * torch.randn(4, 64))
    expected = by_hand(x, linear)
    model = nn.Sequential(linear).requires_grad_(False)
    quantize_linear_maps(model)
    atol = abs(level) * float(linear.weight.abs().sum(1).max()) * 1e-2
    torch.testing.assert_close(model(x).double(), expected, rtol=1e-4, atol=atol)


def test_large_products_do_not_saturate() -> None:
    # on CPUs that add two products in 16 bits, 255 * 127 twice would be 32,767
    linear, x = nn.Linear(512, 3, bias=False), torch.ones(2, 512)
    nn.init.ones_(linear.weight)
    quantized = nn.Sequential(linear).requires_grad_(False)
    quantize_linear_maps(quantized)
    torch.testing.assert_close(quantized(x), torch.full((2, 3), 512.0))


def test_numbers_that_are_not_finite_stay_visible() -> None:
    model = nn.Sequential(nn.Linear(4, 3)).requires_grad_(False)
    quantize_linear_maps(model)
    for number in (torch.inf, -torch.inf, torch.nan):
        assert not model(torch.tensor([[1.0, number, 0.0, 0.0]])).isfinite().any()
    bias = model[0].bias
    assert isinstance(bias, torch.Tensor)
    torch.testing.assert_close(model(torch.zeros(1, 4))[0], bias)


def test_subclasses_of_linear_maps_stay() -> None:
    class Other(nn.Linear):
        pass

    model = nn.Sequential(Other(4, 4))
    quantize_linear_maps(model)
    assert type(model[0]) is Other


def test_a_causal_model_generates_with_8_bits(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", "causal-lm", family=get_family("gpt"))
    exact, quantized = (load_session(checkpoint, "cpu", dtype=name) for name in (None, "int8"))
    assert quantized.dtype == "int8"
    inputs = {"input_ids": np.arange(24, dtype=np.int64).reshape(2, 12)}
    logits = [session.run(inputs)["logits"] for session in (exact, quantized)]
    assert 0 < np.abs(logits[0] - logits[1]).max() < 0.05 * np.abs(logits[0]).max()
    first = [
        session.decoder().prefill({"input_ids": torch.arange(12)[None]}, 1)[0]
        for session in (exact, quantized)
    ]
    assert 0 < (first[0] - first[1]).abs().max() < 0.05 * first[0].abs().max()


def test_what_has_no_8_bits(tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "model", family=get_family("bert"))
    with pytest.raises(UsageError, match="int4 is for models that generate text"):
        open_session(checkpoint, "onnx", dtype="int4")
    with pytest.raises(UsageError, match="torch does not compute in int4 here"):
        load_session(checkpoint, "cpu", dtype="int4")
