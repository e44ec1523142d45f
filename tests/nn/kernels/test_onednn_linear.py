"""Linear maps by oneDNN, against float64, with and without gradients."""

import copy
import platform
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from zoo.nn.kernels import onednn_linear
from zoo.nn.kernels.onednn_linear import OneDnnLinear, is_faster, use_onednn
from zoo.training.logging.throughput import training_flops


@pytest.mark.parametrize("bias", [True, False])
def test_products_and_gradients_are_those_of_float64(bias: bool) -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(320, 256, bias=bias), nn.Linear(256, 8))
    exact = copy.deepcopy(model).double()
    use_onednn(model)
    assert [type(module) for module in model] == [OneDnnLinear, nn.Linear]  # not small ones
    x = torch.randn(3, 7, 320, requires_grad=True)
    wide = x.detach().double().requires_grad_()
    y, expected = model(x), exact(wide)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(model(x), y, rtol=0, atol=0)
    y.square().sum().backward()
    expected.square().sum().backward()
    for ours, theirs in zip((x, *model.parameters()), (wide, *exact.parameters()), strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-4)


def test_products_of_training_are_counted() -> None:
    """A product of 21 rows, and two of its gradients: one of the inputs, one of the matrix."""
    model, x = nn.Sequential(nn.Linear(320, 256)), torch.randn(21, 320, requires_grad=True)
    counts = []
    for _ in range(2):
        counts.append(training_flops(lambda: model(x).sum(), [x, *model.parameters()]))
        use_onednn(model)
    assert counts == [3 * 2 * 21 * 320 * 256] * 2


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
