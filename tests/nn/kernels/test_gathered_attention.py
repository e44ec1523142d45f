"""Attention whose gathered keys are made again in the backward pass."""

from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.nn.kernels import attention
from zoo.nn.local_blocks import LocalBlocks, RowBlocks
from zoo.nn.sparse_blocks import SparseBlocks

TOKENS = 100
SEGMENTS = torch.tensor([[1] * TOKENS, [1] * 70 + [0] * 30])


def blocks(name: str, x: Tensor) -> Any:
    if name == "local":
        return LocalBlocks.from_segments(SEGMENTS, x, 32)
    if name == "rows":
        return RowBlocks.from_rows(SEGMENTS, x, 9, 9, size=16)
    random_blocks = torch.tensor([[[5], [6], [1], [2], [3]], [[4], [5], [6], [1], [2]]])
    sparse = SparseBlocks.for_row(x, 16, 7, random_blocks=random_blocks)
    return sparse._replace(segments=SEGMENTS)


@pytest.mark.parametrize("name", ["local", "rows", "sparse"])
def test_gradients_are_those_of_kept_keys_with_less_memory(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(3, 2, 2, TOKENS, 8, generator=generator, dtype=torch.float64)
    weight = torch.randn(2, 2, TOKENS, 8, generator=generator, dtype=torch.float64)
    mask = blocks(name, torch.zeros(2, TOKENS, 16, dtype=torch.float64))
    results = []
    for keeps in (False, True):
        if keeps:
            monkeypatch.setattr(attention, "can_gather_again", lambda *_: False)
        q, k, v = inputs = [x.clone().requires_grad_() for x in values]
        sizes: dict[int, int] = {}

        def pack(tensor: Tensor, sizes: dict[int, int] = sizes) -> Tensor:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            attended = attention.attend(q, k, v, mask)
        if not isinstance(mask, SparseBlocks):  # Both keep the mask.
            del sizes[mask.mask.untyped_storage().data_ptr()]
        gradients = torch.autograd.grad((attended * weight).sum(), inputs)
        results.append((attended, gradients, sum(sizes.values())))
    (attended, gradients, size), (expected, expected_gradients, kept_size) = results
    assert (attended - expected).abs().max() <= 1e-12
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        assert (gradient - expected_gradient).abs().max() <= 1e-12
    assert size < 0.85 * kept_size
