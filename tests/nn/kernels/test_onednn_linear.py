"""Linear maps by oneDNN, against float64, with and without gradients."""

import copy
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from zoo.nn.adapters import (
    BottleneckAdapter,
    DoRAAdapter,
    IA3Adapter,
    LinearAdapter,
    LoRAAdapter,
    attach_adapter,
    can_adapt,
)
from zoo.nn.heads import VocabularyProjection
from zoo.nn.kernels import onednn_linear
from zoo.nn.kernels.onednn_linear import is_faster, linear, use_onednn
from zoo.nn.row_sums import sum_over_rows
from zoo.objectives.losses.cross_entropy import cross_entropy_of_rows
from zoo.training.logging.throughput import training_flops


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the matrices that oneDNN multiplies with, on any CPU."""
    matrices, product = list[tuple[int, ...]](), onednn_linear._product

    def recorded(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        matrices.append(tuple(weight.shape))
        return product(x, weight, bias)

    monkeypatch.setattr(onednn_linear, "_product", recorded)
    monkeypatch.setattr(onednn_linear, "is_faster", lambda: True)
    return matrices


def test_matrices_of_gradients_have_no_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product with some of the columns, as of one direction of an LSTM, is far slower."""
    dense, product = list[bool](), onednn_linear._product

    def recorded(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        dense.append(weight.is_contiguous() or weight.T.is_contiguous())
        return product(x, weight, bias)

    monkeypatch.setattr(onednn_linear, "_product", recorded)
    monkeypatch.setattr(onednn_linear, "is_faster", lambda: True)
    monkeypatch.setattr(onednn_linear, "LEAST", 0)
    x, weight = torch.randn(8, 6), torch.randn(5, 3, requires_grad=True)
    linear(x[:, :3], weight, None).sum().backward()  # type: ignore[no-untyped-call]
    assert dense == [True, True]
    torch.testing.assert_close(weight.grad, x[:, :3].sum(0).expand(5, 3))


def assert_same_gradients(
    model: nn.Module, exact: nn.Module, x: torch.Tensor, wide: torch.Tensor
) -> None:
    for module, inputs in ((model, x), (exact, wide)):
        y = module(inputs)
        (of_inputs,) = torch.autograd.grad(y.square().sum(), inputs, create_graph=True)
        (y.square().sum() + of_inputs.square().sum()).backward()
    ours, theirs = (
        [t.grad for t in (inputs, *module.parameters()) if t.requires_grad]
        for module, inputs in ((model, x), (exact, wide))
    )
    for gradient, expected in zip(ours, theirs, strict=True):
        assert gradient is not None and expected is not None
        scale = float(expected.abs().max())
        torch.testing.assert_close(gradient.double(), expected, rtol=1e-4, atol=2e-6 * scale)


@pytest.mark.parametrize("bias", [True, False])
def test_products_and_gradients_are_those_of_float64(
    bias: bool, products: list[tuple[int, ...]]
) -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(320, 256, bias=bias), nn.Linear(256, 8))
    exact = copy.deepcopy(model).double()
    use_onednn(model)
    x = torch.randn(3, 7, 320, requires_grad=True)
    wide = x.detach().double().requires_grad_()
    y = model(x)
    torch.testing.assert_close(y.double(), exact(wide), rtol=1e-5, atol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(model(x), y, rtol=0, atol=0)
    assert products == [(256, 320)] * 2  # not the small one
    assert_same_gradients(model, exact, x, wide)


def test_a_cpu_of_intel_computes_as_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn_linear, "is_faster", lambda: False)
    x, weight = torch.randn(64, 320), torch.randn(256, 320)
    assert torch.equal(linear(x, weight), F.linear(x, weight))


ADAPTERS: dict[str, Callable[[], LinearAdapter]] = {
    "lora": lambda: LoRAAdapter({"0": range(192)}, 256, 320, rank=4, scaling=2.0),
    "dora": lambda: DoRAAdapter({"0": range(256)}, 256, 320, rank=4, scaling=2.0),
    "ia3": lambda: IA3Adapter({"0": range(256)}, 256, 320, scales_input=False),
    "bottleneck": lambda: BottleneckAdapter(256, 8, act="gelu", scaling=1.0),
}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_a_frozen_matrix_with_an_adapter_has_no_gradient(
    kind: str, products: list[tuple[int, ...]]
) -> None:
    torch.manual_seed(0)
    model = nn.Linear(320, 256).requires_grad_(False)
    use_onednn(model)
    assert can_adapt(model)
    attach_adapter(model, ADAPTERS[kind]())
    for parameter in model.adapter.parameters():  # type: ignore[union-attr]
        nn.init.normal_(parameter, std=0.1)
    exact = copy.deepcopy(model).double()
    x = torch.randn(3, 7, 320, requires_grad=True)
    wide = x.detach().double().requires_grad_()
    y, expected = model(x), exact(wide)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    y.square().mean().backward()
    expected.square().mean().backward()
    assert products == [(256, 320), (320, 256)]  # of the outputs and of the inputs' gradient
    for ours, theirs in zip((x, *model.parameters()), (wide, *exact.parameters()), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        if ours.grad is not None:
            torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_loss_of_tied_embeddings_is_computed_by_onednn(
    at_once: bool, products: list[tuple[int, ...]]
) -> None:
    torch.manual_seed(0)
    shapes = ((30, 64), (1000, 64), (1000,))
    ours = [torch.randn(shape, requires_grad=True) for shape in shapes]
    wide = [tensor.detach().double().requires_grad_() for tensor in ours]
    labels = torch.randint(1000, (30,))
    projection = VocabularyProjection(*ours)
    loss = sum_over_rows(
        cross_entropy_of_rows, projection.logits() if at_once else projection, labels
    )[0]
    expected = F.cross_entropy(F.linear(*wide), labels, reduction="sum")
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)
    loss.backward()  # type: ignore[no-untyped-call]
    expected.backward()  # type: ignore[no-untyped-call]
    assert sorted(products) == [(64, 30), (64, 1000), (1000, 64)]
    for tensor, exact in zip(ours, wide, strict=True):
        torch.testing.assert_close(tensor.grad.double(), exact.grad, rtol=1e-4, atol=1e-5)  # type: ignore[union-attr]


def test_products_of_training_are_counted(products: list[tuple[int, ...]]) -> None:
    """A product of 21 rows, and two of its gradients: one of the inputs, one of the matrix."""
    model, x = nn.Sequential(nn.Linear(320, 256)), torch.randn(21, 320, requires_grad=True)
    counts = []
    for _ in range(2):
        counts.append(training_flops(lambda: model(x).sum(), [x, *model.parameters()]))
        use_onednn(model)
    assert counts == [3 * 2 * 21 * 320 * 256] * 2
    assert len(products) == 3


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


@pytest.mark.long
def test_products_of_many_lengths_take_little_memory() -> None:
    """oneDNN would keep the code of each: 60 MB for 100 numbers of rows."""
    code = """
import resource, torch
from zoo.nn.kernels.onednn_linear import _product
weight, x = torch.randn(384, 384), torch.randn(300, 384)
begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for rows in range(100, 200):
    _product(x[:rows], weight, None)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin)
"""
    caches = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    environment = {name: value for name, value in os.environ.items() if name not in caches}
    argv = [sys.executable, "-c", code]
    printed = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    assert int(printed.stdout) < 35 << 10  # in KB
