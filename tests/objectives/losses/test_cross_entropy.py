"""Cross-entropy in chunks: equal to torch's, with its gradients, and never all logits in memory."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from zoo.nn import row_chunks
from zoo.nn.heads import VocabularyProjection
from zoo.objectives.losses.cross_entropy import IGNORED, summed_cross_entropy
from zoo.objectives.losses.predictions import cross_entropy_sum

POSITIONS, WIDTH, VOCABULARY = 23, 6, 40
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the logits of five positions at once."""
    monkeypatch.setattr(row_chunks, "LOGITS_AT_ONCE", 5 * VOCABULARY)


def operands(dtype: torch.dtype, *, bias: bool = True) -> tuple[list[Tensor], Tensor]:
    """Return hidden states, weight and perhaps bias, and labels of which some do not count."""
    draw = torch.Generator().manual_seed(0)
    shapes = [(POSITIONS, WIDTH), (VOCABULARY, WIDTH), (VOCABULARY,)][: 2 + bias]
    tensors = [
        torch.randn(shape, dtype=torch.float64, generator=draw).to(dtype).requires_grad_()
        for shape in shapes
    ]
    labels = torch.randint(VOCABULARY, (POSITIONS,), generator=draw)
    labels[[3, 11, -1]] = IGNORED
    return tensors, labels


def plain(tensors: list[Tensor], labels: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(*tensors), labels, reduction="sum")


@pytest.mark.usefixtures("few_at_once")
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_loss_and_gradients_equal_those_of_torch(dtype: torch.dtype, bias: bool) -> None:
    tensors, labels = operands(dtype, bias=bias)
    expected = plain(tensors, labels)
    gradients = torch.autograd.grad(expected, tensors, torch.tensor(0.3, dtype=dtype))
    total, correct = summed_cross_entropy(VocabularyProjection(*tensors), labels)
    assert total.dtype == dtype and int(correct) == int(
        (F.linear(*tensors).argmax(-1) == labels).sum()
    )
    tolerance = TOLERANCE[dtype]
    assert float(total) == pytest.approx(float(expected), rel=tolerance)
    chunked = torch.autograd.grad(total, tensors, torch.tensor(0.3, dtype=dtype))
    for gradient, reference in zip(chunked, gradients, strict=True):
        assert (gradient - reference).abs().max() <= tolerance * reference.abs().max()


@pytest.mark.parametrize("limit", [1, 3 * VOCABULARY, 1 << 18], ids=["1 row", "3 rows", "all"])
def test_logits_of_some_rows_at_a_time_have_the_loss_and_gradient_of_torch(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(row_chunks, "LOGITS_IN_CACHE", limit)
    tensors, labels = operands(torch.float64)
    expected = plain(tensors, labels)
    logits = F.linear(*tensors)
    total, correct = summed_cross_entropy(logits, labels)
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=0)
    assert int(correct) == int((logits.argmax(-1) == labels).sum())
    gradients, references = (torch.autograd.grad(3 * loss, tensors) for loss in (total, expected))
    for gradient, reference in zip(gradients, references, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-10, atol=1e-14)


@pytest.mark.usefixtures("few_at_once")
def test_smoothed_targets_have_the_loss_and_gradient_of_torch() -> None:
    tensors, labels = operands(torch.float64)
    logits = F.linear(*tensors)
    expected = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=0.1)
    references = torch.autograd.grad(expected, tensors, retain_graph=True)
    for given in (logits, VocabularyProjection(*tensors)):
        total = cross_entropy_sum(given, labels, "a", label_smoothing=0.1).sums["a"]
        torch.testing.assert_close(total, expected, rtol=1e-12, atol=0)
        for gradient, reference in zip(
            torch.autograd.grad(total, tensors), references, strict=True
        ):
            torch.testing.assert_close(gradient, reference, rtol=1e-10, atol=1e-14)


@pytest.mark.usefixtures("few_at_once")
def test_the_loss_is_the_formula() -> None:
    tensors, labels = operands(torch.float64)
    hidden, weight, bias = (tensor.detach().numpy() for tensor in tensors)
    logits, expected = hidden @ weight.T + bias, 0.0
    for row, label in zip(logits, labels.tolist(), strict=True):
        if label != IGNORED:
            expected += math.log(np.exp(row - row.max()).sum()) + row.max() - row[label]
    total, _ = summed_cross_entropy(VocabularyProjection(*tensors), labels)
    assert float(total) == pytest.approx(expected, rel=1e-12)


@pytest.mark.long
@pytest.mark.usefixtures("few_at_once")
def test_gradients_equal_numerical_ones() -> None:
    tensors, labels = operands(torch.float64)

    def loss(*arguments: Tensor) -> Tensor:
        return summed_cross_entropy(VocabularyProjection(*arguments), labels)[0]

    assert torch.autograd.gradcheck(loss, tensors)


@pytest.mark.usefixtures("few_at_once")
def test_a_frozen_table_gets_no_gradient() -> None:
    (hidden, weight, bias), labels = operands(torch.float64)
    expected = torch.autograd.grad(plain([hidden, weight, bias], labels), hidden)[0]
    frozen = VocabularyProjection(hidden, weight.detach(), bias.detach())
    gradient = torch.autograd.grad(summed_cross_entropy(frozen, labels)[0], hidden)[0]
    assert (gradient - expected).abs().max() < 1e-12


@pytest.mark.usefixtures("few_at_once")
def test_autocast_computes_products_in_half_precision_as_torch_does() -> None:
    tensors, labels = operands(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        logits = F.linear(*tensors)
        assert logits.dtype == torch.bfloat16
        expected = F.cross_entropy(logits.float(), labels, reduction="sum")
        total, _ = summed_cross_entropy(VocabularyProjection(*tensors), labels)
    exact = float(plain(tensors, labels))
    assert total.dtype == torch.float32
    # the products are those of half precision, not of float32
    assert float(total) == pytest.approx(float(expected), rel=1e-6) != pytest.approx(exact, 1e-6)
    gradients = torch.autograd.grad(expected, tensors)
    for chunked, gradient in zip(torch.autograd.grad(total, tensors), gradients, strict=True):
        assert chunked.dtype == torch.float32
        assert (chunked - gradient).abs().max() < 0.02 * gradient.abs().max()


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the number of elements of the largest tensor that is computed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
        self.elements = max(self.elements, *sizes, 0)
        return outputs


def memory(loss: Callable[[], Tensor]) -> tuple[int, int]:
    """Return the elements of the largest tensor, and of those that the backward pass keeps."""
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        saved[tensor.data_ptr()] = tensor.numel()
        return tensor

    with Largest() as largest:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            total = loss()
        total.backward()  # type: ignore[no-untyped-call]
    return largest.elements, sum(saved.values())


@pytest.mark.usefixtures("few_at_once")
def test_never_more_logits_than_the_limit_are_held() -> None:
    draw = torch.Generator().manual_seed(0)
    tensors = [torch.randn(400, WIDTH, generator=draw), torch.randn(VOCABULARY, WIDTH)]
    tensors = [tensor.requires_grad_() for tensor in tensors]
    labels = torch.randint(VOCABULARY, (400,), generator=draw)
    inputs = sum(tensor.numel() for tensor in tensors) + len(labels)
    largest, saved = memory(lambda: summed_cross_entropy(VocabularyProjection(*tensors), labels)[0])
    assert largest <= max(row_chunks.LOGITS_AT_ONCE, *(t.numel() for t in tensors))
    assert saved <= inputs
    whole, saved_whole = memory(lambda: plain(tensors, labels))
    assert whole == 400 * VOCABULARY > 5 * largest
    assert saved_whole > whole  # log-probabilities, beside the inputs
