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
    """Inputs in -127 to 127, weights of 8 or 7 bits, each row of both with a scale of its own."""
    scale = x.double().abs().amax(dim=-1, keepdim=True) / 127
    inputs = (x.double() / scale).round()
    scales = linear.weight.double().abs().amax(dim=1, keepdim=True) / largest_weight()
    weights = (linear.weight.double() / scales).round()
    return scale * (inputs @ weights.T) * scales.T + linear.bias.double()


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
    torch.testing.assert_close(together, one_by_one, rtol=0, atol=0, equal_nan=True)
    assert together.isfinite().all(1).tolist() == [True] * 4 + [False]


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
