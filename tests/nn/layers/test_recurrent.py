"""Recurrence over tokens, compared with a loop over single rows, and its state across batches."""

import pytest
import torch
from torch import Tensor

from zoo.nn.layers.recurrent import RecurrentState, Tensors, scan

LENGTHS = (4, 1, 3)


def step(held: Tensors, token: Tensors) -> Tensors:
    """A decaying sum and a count over tokens that are not padding."""
    (total, count), (value, real) = held, token
    return torch.where(real, total / 2 + value, total), count + real


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_equals_a_loop(reverse: bool) -> None:
    values = torch.arange(24.0).view(3, 4, 2)
    mask = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
    begin = torch.ones(3, 2), torch.zeros(3, 1)
    actual, (total, count) = scan(step, begin, (values, mask[..., None]), reverse=reverse)
    assert actual.shape == (3, 4, 2) and count.flatten().tolist() == list(LENGTHS)
    for row, length in enumerate(LENGTHS):
        held = torch.ones(2)
        for place in range(length)[:: -1 if reverse else 1]:
            held = held / 2 + values[row, place]
            assert torch.equal(actual[row, place], held)
        assert torch.equal(total[row], held)


@pytest.mark.long
def test_exported_scan_of_any_length() -> None:
    class Layer(torch.nn.Module):
        def forward(self, example: Tensor, mask: Tensor) -> Tensor:
            begin = example.new_ones(example.shape[0], 2), example.new_zeros(example.shape[0], 1)
            return scan(step, begin, (example, mask[..., None]), reverse=True)[0]

    def inputs(tokens: int) -> tuple[Tensor, Tensor]:
        return torch.randn(3, tokens, 2), torch.arange(tokens) < torch.tensor(LENGTHS)[:, None]

    tokens = torch.export.Dim("tokens", min=2, max=64)
    graph = torch.export.export(Layer(), inputs(4), dynamic_shapes=({1: tokens}, {1: tokens}))
    for example in map(inputs, (4, 7)):
        assert torch.equal(graph.module()(*example), Layer()(*example))


def test_state_is_carried_by_row() -> None:
    first, rows = RecurrentState(), torch.arange(3.0)[:, None].requires_grad_()
    assert not first.before("cell", torch.zeros(3, 1)).any()
    first.after("cell", rows)
    assert not first.ended["cell"].requires_grad
    fewer = RecurrentState(first.ended)
    assert fewer.before("cell", torch.zeros(2, 1)).tolist() == [[0], [1]]
    fewer.after("cell", torch.tensor([[5.0], [6.0]]))
    more = RecurrentState(fewer.ended)
    assert more.before("cell", torch.zeros(4, 1)).tolist() == [[5], [6], [2], [0]]
    assert not more.before("output", torch.zeros(4, 1)).any()
