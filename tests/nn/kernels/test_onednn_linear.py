"""Linear maps by oneDNN, against float64, with and without gradients."""

import platform
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from zoo.nn.kernels import onednn_linear
from zoo.nn.kernels.onednn_linear import OneDnnLinear, is_faster, use_onednn


@pytest.mark.parametrize("bias", [True, False])
def test_products_are_those_of_float64(bias: bool) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(96, 40, bias=bias), torch.randn(3, 7, 96)
    expected = nn.functional.linear(
        x.double(), linear.weight.double(), linear.bias.double() if bias else None
    )
    model = nn.Sequential(linear)
    use_onednn(model)
    assert isinstance(model[0], OneDnnLinear)
    with torch.inference_mode():
        torch.testing.assert_close(model(x).double(), expected, rtol=1e-5, atol=1e-5)
    model(x).sum().backward()
    gradient = x.sum((0, 1)).expand(40, 96)
    torch.testing.assert_close(linear.weight.grad, gradient)


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("vendor_id\t: GenuineIntel\n", False),
        ("vendor_id\t: AuthenticAMD\n", True),
        ("Features\t: fp asimd\n", False),
    ],
)
def test_the_vendor_decides(
    cpuinfo: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(onednn_linear, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    backends: Any = torch.backends
    is_faster.cache_clear()
    try:
        assert is_faster() == (expected and backends.mkl.is_available())
    finally:
        is_faster.cache_clear()
