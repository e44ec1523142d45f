"""Attention of some tokens to their documents, compared with that of all tokens."""

import itertools

import pytest
import torch
from torch import Tensor

from tests.nn.kernels.comparing import assert_equal_with_gradients
from zoo.nn.kernels import document_groups
from zoo.nn.kernels.attention import attend
from zoo.nn.kernels.selected_queries import attend_from_positions, can_select_queries
from zoo.nn.packed_attention import DocumentOffsets

LENGTHS = (3, 1, 6, 2, 5)
POSITIONS = torch.tensor([9, 0, 16, 4, 2, 9])  # none in two documents, and one twice
HEADS = 4
SIZE = 8


def documents_of(lengths: tuple[int, ...]) -> DocumentOffsets:
    offsets = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    return DocumentOffsets(offsets, max(lengths))


def tensors() -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    tokens = sum(LENGTHS)
    return [
        torch.randn(1, tokens, HEADS, SIZE, generator=draw, dtype=torch.float64)
        .transpose(1, 2)
        .requires_grad_()
        for _ in range(3)
    ]


@pytest.mark.parametrize("limit", [1, 1 << 18], ids=["one head at once", "all heads"])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_outputs_and_gradients_are_those_of_all_queries(
    scale: float | None, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_groups, "SCORES_AT_ONCE", limit)
    q, k, v = operands = tensors()
    documents = documents_of(LENGTHS)
    expected = attend(q, k, v, documents, scale=scale)[:, :, POSITIONS]
    result = attend_from_positions(q[:, :, POSITIONS], k, v, POSITIONS, documents, scale=scale)
    assert_equal_with_gradients(result, expected, operands, 1e-12)


def test_weights_are_dropped() -> None:
    q, k, _ = tensors()
    v = torch.eye(sum(LENGTHS), dtype=torch.float64).expand(1, HEADS, -1, -1)
    torch.manual_seed(0)
    positions = torch.arange(4, 10)  # all of the document of six tokens
    result = attend_from_positions(
        q[:, :, positions], k, v, positions, documents_of(LENGTHS), dropout=0.5
    )
    inside = result[..., 4:10]  # with these values, the output is the weights
    assert 0.3 < (inside == 0).double().mean() < 0.7
    weights = (q[0, :, 4:10] @ k[0, :, 4:10].mT * SIZE**-0.5).softmax(-1)
    torch.testing.assert_close(inside[0], torch.where(inside[0] == 0, 0, weights * 2))
    assert not result[..., :4].any() and not result[..., 10:].any()


def test_documents_whose_last_tokens_count_are_not_selected() -> None:
    q = torch.randn(1, 3, requires_grad=True)
    documents = documents_of(LENGTHS)
    assert can_select_queries(q, q, documents, dropout=0.1)
    assert not can_select_queries(q, q, documents._replace(causal=True), dropout=0.1)
    assert not can_select_queries(q, q, documents._replace(reach=4), dropout=0.1)
    assert not can_select_queries(q.detach(), q.detach(), documents, dropout=0.1)
