"""Attention in groups of documents, compared with that of each document in float64."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.nn.kernels.comparing import assert_equal_with_gradients
from zoo.nn.kernels import document_groups
from zoo.nn.kernels.document_groups import (
    attend_in_groups,
    group_documents,
    groups_of_documents,
)
from zoo.nn.packed_attention import DocumentOffsets

HEADS, SIZE = 3, 4
LENGTHS = (3, 1, 6, 2, 5, 6, 1)


def documents_of(*lengths: int, causal: bool = False) -> DocumentOffsets:
    offsets = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    return DocumentOffsets(offsets, max(lengths), causal)


def operands(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    shape = 1, sum(LENGTHS), HEADS, SIZE
    return [
        torch.randn(shape, generator=draw, dtype=torch.float64)
        .to(dtype)
        .transpose(1, 2)
        .requires_grad_()
        for _ in range(3)
    ]


def each_document(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    parts = zip(*(torch.split(x, list(LENGTHS), dim=2) for x in (q, k, v)), strict=True)
    mixed = [
        F.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
        for queries, keys, values in parts
    ]
    return torch.cat(mixed, dim=2)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("at_once", [1, 40, 1 << 18], ids=lambda count: f"{count} scores at once")
@pytest.mark.parametrize("of_group", [0, 30, 1 << 15], ids=lambda count: f"{count} of padding")
def test_outputs_and_gradients_are_those_of_each_document(
    causal: bool, at_once: int, of_group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_groups, "SCORES_AT_ONCE", at_once)
    monkeypatch.setattr(document_groups, "SCORES_OF_A_GROUP", of_group)
    q, k, v = inputs = operands()
    documents = documents_of(*LENGTHS, causal=causal)
    groups = groups_of_documents(documents, HEADS)
    value = attend_in_groups(q, k, v, groups, causal=causal)
    expected = each_document(q, k, v, causal=causal)
    assert_equal_with_gradients(value, expected, inputs, 1e-13)


@pytest.mark.parametrize(
    ("padding", "expected"),
    [
        (0, [(6, 6), (5,), (3,), (2,), (1, 1)]),  # only equal lengths
        (11, [(6, 6, 5), (3, 2), (1, 1)]),  # 36 - 25, then 9 - 4
        (10**6, [(6, 6, 5, 3, 2, 1, 1)]),
    ],
)
def test_groups_have_no_more_padding_than_allowed(
    padding: int, expected: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_groups, "SCORES_OF_A_GROUP", padding * HEADS)
    offsets = documents_of(*LENGTHS).offsets
    blocks = group_documents(offsets, offsets, HEADS).blocks
    assert len(blocks) == len(expected)
    for block, lengths in zip(blocks, expected, strict=True):
        sizes = block.matrices, block.queries, block.keys
        assert sizes == (len(lengths) * HEADS, lengths[0], lengths[0])
        missing = lengths[0] - torch.tensor(lengths).repeat_interleave(HEADS)
        assert (block.padding is None) == (not missing.any())
        if block.padding is not None:
            assert block.padding.sum((1, 2)).tolist() == missing.tolist()


def test_dropped_weights_count_in_neither_pass() -> None:
    q, k, _ = operands()
    tokens = sum(LENGTHS)
    v = torch.eye(tokens).double().expand(1, HEADS, -1, -1).clone().requires_grad_()
    torch.manual_seed(0)
    groups = groups_of_documents(documents_of(*LENGTHS), HEADS)
    value = attend_in_groups(q, k, v, groups, dropout=0.25)
    kept = (value != 0).double() / 0.75  # with these values, the output is the weights
    document = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
    same = document[:, None] == document
    assert 0.15 < 1 - kept[..., same].mean() * 0.75 < 0.35
    weights = (q @ k.mT * SIZE**-0.5).masked_fill(~same, -torch.inf).softmax(-1)
    expected = (weights * kept) @ v
    assert_equal_with_gradients(value, expected, (q, k, v), 1e-13)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    groups = groups_of_documents(documents_of(*LENGTHS), HEADS)
    half = [x.detach().requires_grad_() for x in operands(dtype)]
    exact = [x.detach().double().requires_grad_() for x in half]
    results = []
    for inputs in (half, exact):
        q, k, v = inputs
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
            value = attend_in_groups(q, k, v, groups, dropout=0.1)
        assert value.dtype == q.dtype
        weight = torch.ones_like(value).cumsum(2)
        results.append([value, *torch.autograd.grad(value, inputs, weight)])
    for result, reference in zip(*results, strict=True):
        assert (result.double() - reference).norm() < torch.finfo(dtype).eps * reference.norm()


def test_documents_without_queries_have_no_gradient() -> None:
    q, k, v = operands()
    offsets = documents_of(*LENGTHS).offsets
    of_queries = torch.tensor([0, 2, 2, 3, 3, 3, 3, 3])  # of the first and the third document
    groups = group_documents(of_queries, offsets, HEADS)
    value = attend_in_groups(q[:, :, :3], k, v, groups)
    of_k, of_v = torch.autograd.grad(value.sum(), (k, v))
    for gradient in (of_k, of_v):
        read = gradient.abs().sum((0, 1, 3)) > 0
        assert read.tolist() == [token < 3 or 4 <= token < 10 for token in range(sum(LENGTHS))]


def test_no_queries_at_all() -> None:
    q, k, v = operands()
    groups = group_documents(torch.zeros(len(LENGTHS) + 1), documents_of(*LENGTHS).offsets, HEADS)
    value = attend_in_groups(q[:, :, :0], k, v, groups, dropout=0.1)
    assert value.shape == (1, HEADS, 0, SIZE)
    assert not torch.autograd.grad(value.sum(), k)[0].any()


def test_layers_share_groups() -> None:
    documents = documents_of(*LENGTHS)
    groups = groups_of_documents(documents, HEADS)
    assert groups_of_documents(documents, HEADS) is groups
    assert groups_of_documents(documents, HEADS + 1) is not groups
    more = documents._replace(more_keys=2)
    assert groups_of_documents(more, HEADS).blocks[0].keys == groups.blocks[0].keys + 2
