"""Embeddings with spare gradients, compared with those of torch."""

import pytest
import torch
from torch import Tensor, nn

from zoo.nn.kernels import embedding
from zoo.nn.kernels.embedding import Embedding, recycle_gradients


@pytest.fixture(autouse=True)
def tables_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "LARGE", 0)


def tables() -> tuple[Embedding, nn.Embedding]:
    torch.manual_seed(0)
    ours, reference = Embedding(11, 4, dtype=torch.float64), nn.Embedding(11, 4)
    reference.weight = nn.Parameter(ours.weight.detach().clone())
    return ours, reference


def backward(module: nn.Embedding, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 11, (3, 5), generator=draw)
    rows = module(ids)
    rows.backward(torch.randn(rows.shape, generator=draw, dtype=rows.dtype))
    assert module.weight.grad is not None
    return module.weight.grad


def test_gradients_equal_those_of_torch_and_share_memory_from_step_to_step() -> None:
    ours, reference = tables()
    addresses = set()
    for step in range(4):
        assert torch.equal(backward(ours, step), backward(reference, step))
        assert ours.weight.grad is not None
        addresses.add(ours.weight.grad.data_ptr())
        recycle_gradients(nn.Sequential(ours))
        assert ours.weight.grad is None
        reference.weight.grad = None
    assert len(addresses) == 1


def test_gradients_of_several_passes_add_up() -> None:
    ours, reference = tables()
    backward(ours, 0)
    ours.recycle_gradient()
    for step in (1, 2, 3):
        backward(ours, step)
        backward(reference, step)
    torch.testing.assert_close(ours.weight.grad, reference.weight.grad)


def test_a_tied_table_gets_both_gradients() -> None:
    ours, reference = tables()
    ids = torch.tensor([[3, 3, 10], [0, 1, 3]])
    for _ in range(2):
        gradients = []
        for module in (ours, reference):
            module.weight.grad = None if module is reference else module.weight.grad
            (module(ids) @ module.weight.T).square().sum().backward()
            assert module.weight.grad is not None
            gradients.append(module.weight.grad.clone())
        torch.testing.assert_close(*gradients)
        ours.recycle_gradient()


def test_the_row_of_padding_is_not_trained() -> None:
    ours, reference = tables()
    for module in (ours, reference):
        module.padding_idx = 3
    for step in range(2):
        gradient = backward(ours, step)
        assert torch.equal(gradient, backward(reference, step))
        assert not gradient[3].any() and gradient.any()
        ours.recycle_gradient()
        reference.weight.grad = None


def test_a_spare_gradient_of_another_dtype_is_not_used() -> None:
    ours, _ = tables()
    backward(ours, 0)
    ours.recycle_gradient()
    assert ours.spare_gradient is not None
    ours.float()
    assert backward(ours, 1).dtype == torch.float32


def test_rows_without_a_gradient_are_those_of_torch() -> None:
    ours, reference = tables()
    ids = torch.tensor([1, 5])
    with torch.no_grad():
        assert torch.equal(ours(ids), reference(ids))
    ours.requires_grad_(False)
    assert not ours(ids).requires_grad


def test_small_tables_keep_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "LARGE", 1 << 25)
    ours, reference = tables()
    assert torch.equal(backward(ours, 0), backward(reference, 0))
    ours.recycle_gradient()
    assert ours.spare_gradient is None and ours.weight.grad is None
