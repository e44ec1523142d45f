"""Attention by the offsets of documents, compared with masks, with flex attention and by kernel."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tests.nn.kernels.comparing import assert_equal_with_gradients
from zoo.nn.capture import capture
from zoo.nn.encoder import packed_mask
from zoo.nn.kernels import packed_attention
from zoo.nn.kernels.attention import attend
from zoo.nn.kernels.document_groups import attend_in_groups, groups_of_documents
from zoo.nn.kernels.packed_attention import masks_only, supports_offsets
from zoo.nn.packed_attention import DocumentOffsets
from zoo.plugins import get_family

# three rows: documents with padding, one document, documents of one token and no padding
IDS = torch.tensor(
    [[1, 1, 1, 2, 2, 3, 3, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1], [1, 2, 3, 3, 3, 4, 4, 4, 4]]
)
OFFSETS = [0, 3, 5, 7, 9, 18, 19, 20, 23, 27]


def queries_keys_values(head_size: int = 8) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    shape = (*IDS.shape, 2, head_size)
    return [
        torch.randn(shape, dtype=torch.float64, generator=draw).transpose(1, 2).requires_grad_()
        for _ in range(3)
    ]


def test_offsets_are_the_starts_of_the_documents() -> None:
    documents = DocumentOffsets.of(IDS)
    assert documents.offsets.tolist() == OFFSETS
    assert (documents.offsets.dtype, documents.max_length) == (torch.int32, 9)
    assert DocumentOffsets.of(IDS[1:2]).offsets.tolist() == [0, 9]


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("scale", [None, 1.0])
def test_outputs_and_gradients_equal_those_of_a_mask(causal: bool, scale: float | None) -> None:
    q, k, v = operands = queries_keys_values()
    mask = packed_mask(IDS, IDS, torch.float64, causal=causal)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    documents = DocumentOffsets.of(IDS, causal=causal)
    result = attend(q, k, v, documents, scale=scale)
    assert_equal_with_gradients(result, expected, operands, 1e-12)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("in_groups", [False, True])
def test_documents_have_keys_before_their_tokens(in_groups: bool, causal: bool) -> None:
    """Two each, which all queries of the document attend to, by the kernel and in groups."""
    lengths, more, ids = (3, 1, 5), 2, torch.tensor([[1, 1, 1, 2, 3, 3, 3, 3, 3]])
    of_keys = torch.cat([torch.full((more + n,), k) for k, n in enumerate(lengths, start=1)])[None]
    place = torch.cat([torch.arange(-more, n) for n in lengths])
    of_query = place[place >= 0]
    q, k, v = (
        torch.randn(1, 2, n, 8, dtype=torch.float64, requires_grad=True)
        for n in (9, of_keys.shape[1], of_keys.shape[1])
    )
    mask = packed_mask(ids, of_keys, torch.float64)
    if causal:
        mask = mask.masked_fill(place > of_query[:, None], -torch.inf)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    documents = DocumentOffsets.of(ids, causal=causal)._replace(more_keys=more)
    if in_groups:
        groups = groups_of_documents(documents, q.shape[1])
        found = attend_in_groups(q, k, v, groups, causal=causal)
    else:
        found = attend(q, k, v, documents)
    assert_equal_with_gradients(found, expected, (q, k, v), 1e-12)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_scores_of_all_pairs_are_not_stored(causal: bool) -> None:
    """So that the memory of training grows with the tokens of a document, not with their square."""
    tokens, stored = 64, list[Tensor]()
    q, k, v = (torch.randn(1, 2, tokens, 8, requires_grad=True) for _ in range(3))
    documents = DocumentOffsets.of(torch.ones(1, tokens, dtype=torch.int64), causal=causal)

    def keep(x: Tensor) -> Tensor:
        stored.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        attend(q, k, v, documents)
    assert stored
    assert [x.shape for x in stored if x.numel() >= 2 * tokens**2] == []


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_outputs_equal_those_of_flex_attention(causal: bool) -> None:
    q, k, v = (x.detach().float() for x in queries_keys_values(16))

    def same_document(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same = IDS[row, query] == IDS[row, key]
        return same & (key <= query) if causal else same

    rows, tokens = IDS.shape
    blocks = create_block_mask(same_document, rows, None, tokens, tokens, device="cpu")
    expected: Any = flex_attention(q, k, v, block_mask=blocks)
    result = attend(q, k, v, DocumentOffsets.of(IDS, causal=causal))
    assert (result - expected).abs().max() < 1e-6


@pytest.mark.parametrize(("name", "head"), [("bert", "masked-lm"), ("gpt", "causal-lm")])
def test_hidden_states_and_gradients_of_a_model_are_the_same(
    name: str, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = get_family(name)
    torch.manual_seed(0)
    model: Any = family.model(family.sizes()["tiny"], head).double().eval()
    tokens = torch.randint(5, 100, IDS.shape)
    used = (IDS != 0)[..., None]
    weight = torch.randn(*IDS.shape, 1, dtype=torch.float64) * used  # padding has no meaning

    def run() -> tuple[Tensor, list[Tensor]]:
        hidden = model.encode(tokens, document_ids=IDS)
        parameters = list(model.layers.parameters())
        return hidden * used, list(torch.autograd.grad((hidden * weight).sum(), parameters))

    expected, gradients = run()
    monkeypatch.setattr(packed_attention, "supports_offsets", lambda x, document_ids: True)
    hidden, others = run()
    assert (hidden - expected).abs().max() < 1e-12
    for gradient, reference in zip(others, gradients, strict=True):
        assert (gradient - reference).abs().max() < 1e-11


@pytest.mark.parametrize("head_size", [64, 12])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_kernel_takes_the_arguments(head_size: int, dropout: float) -> None:
    """By shapes and dtypes alone, without a device."""
    x = torch.empty(27, 2, head_size, dtype=torch.bfloat16, device="meta", requires_grad=True)
    documents = DocumentOffsets(torch.empty(10, dtype=torch.int32, device="meta"), 9, True)
    mixed = packed_attention._flash(x, x, x, documents, dropout, 0.1)
    node = mixed.grad_fn
    while node is not None and "FlashAttention" not in node.name():
        node = node.next_functions[0][0]
    assert mixed.shape == x.shape and node is not None  # the kernel has a backward pass


@pytest.mark.long
def test_masks_are_taken_without_a_gradient_and_wherever_attention_is_looked_at() -> None:
    assert not supports_offsets(torch.zeros(3, 9, 4, dtype=torch.bfloat16), IDS)
    family = get_family("bert")
    model: Any = family.model(family.sizes()["tiny"], "none").eval()
    tokens = torch.randint(5, 100, IDS.shape)
    with capture(model, attention=(0,)) as captured, masks_only():
        model.encode(tokens, document_ids=IDS)
    other = IDS[:, :, None] != IDS[:, None, :]
    assert (captured.attention[0] * other[:, None]).abs().max() == 0


def test_offsets_are_taken_in_training_where_they_save_many_pairs() -> None:
    short, long = torch.arange(64) // 16, torch.arange(1024) // 16
    x = torch.zeros(1, 1024, 4, requires_grad=True)
    assert supports_offsets(x, long[None])
    assert not supports_offsets(x[:, :64], short[None])  # 48 of 64 keys of each query are another's
    with masks_only():
        assert not supports_offsets(x, long[None])
    with torch.no_grad():
        assert not supports_offsets(x, long[None])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dropout_of_documents_keeps_the_mean_and_drops_no_pair_twice(dtype: torch.dtype) -> None:
    """With values of one, an output is the sum of the weights that are left."""
    ids = torch.zeros(2, 512, dtype=torch.int64)
    q, k = (torch.zeros(2, 4, 512, 8, dtype=dtype, requires_grad=True) for _ in range(2))
    v = torch.ones(2, 4, 512, 8, dtype=dtype, requires_grad=True)
    torch.manual_seed(0)
    output = attend(q, k, v, DocumentOffsets.of(ids), dropout=0.25)
    sums = output[..., 0].double()
    rounding = 1e-3 if dtype is torch.bfloat16 else 0
    deviation = (0.25 / 0.75 / 512) ** 0.5  # of the sum of 512 weights of 1 / 512
    assert abs(sums.mean() - 1) < 5 * deviation / sums.numel() ** 0.5 + rounding
    assert 0.8 * deviation < sums.std() < 1.2 * deviation
    (of_v,) = torch.autograd.grad(output.sum(), v)
    assert abs(of_v.double().mean() - 1) < 0.01
