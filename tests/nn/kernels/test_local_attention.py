"""Local attention by blocks and by offsets, compared with a mask of all pairs of tokens."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from zoo.nn.attention.masks import padding_mask
from zoo.nn.capture import capture
from zoo.nn.kernels.attention import attend
from zoo.nn.kernels.local_attention import local_attention
from zoo.nn.kernels.packed_attention import masks_only
from zoo.nn.local_blocks import LocalBlocks
from zoo.nn.packed_attention import DocumentOffsets, one_segment_a_row
from zoo.nn.positions import Positions
from zoo.plugins import get_family

TOKENS = 50
SEGMENTS = {
    "all": None,
    "padded on both sides": [[0] * 3 + [1] * 40 + [0] * 7, [1] * 50],
    "padding within": [[1] * 20 + [0] * 2 + [1] * 28, [1, 0] * 25],
    "documents": [[1] * 5 + [2] * 30 + [3] * 10 + [0] * 5, [1] * 49 + [2]],
    "only padding": [[0] * 50, [1] * 50],
}


def operands(batch: int = 2, tokens: int = TOKENS, size: int = 8) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    shape = (batch, tokens, 3, size)
    return [
        torch.randn(shape, dtype=torch.float64, generator=draw).transpose(1, 2).requires_grad_()
        for _ in range(3)
    ]


def allowed(segments: Tensor | None, reach: int) -> Tensor:
    """Return the pairs of tokens in a window and a segment, (batch or 1, 1, queries, keys)."""
    place = torch.arange(TOKENS)
    near = (place[:, None] - place).abs() <= reach
    same = torch.ones(1, 1, 1, dtype=torch.bool)
    if segments is not None:
        same = segments[:, :, None] == segments[:, None, :]
    return (near & same)[:, None]


def assert_equal(result: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    weight = torch.randn_like(expected)
    pairs = zip(
        (result, *torch.autograd.grad(result, inputs, weight)),
        (expected, *torch.autograd.grad(expected, inputs, weight)),
        strict=True,
    )
    assert [far for a, b in pairs if (far := (a - b).detach().abs().max().item()) > 1e-12] == []


@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.parametrize(("reach", "size"), [(3, 4), (3, 7), (5, 64), (0, 8), (60, 16)])
def test_outputs_and_gradients_of_blocks_equal_those_of_a_mask(
    name: str, reach: int, size: int
) -> None:
    q, k, v = inputs = operands()
    segments = None if SEGMENTS[name] is None else torch.tensor(SEGMENTS[name])
    blocks = LocalBlocks.from_segments(segments, q[:, 0], reach, size=size)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed(segments, reach))
    assert_equal(attend(q, k, v, blocks), expected, inputs)


@pytest.mark.parametrize("reach", [0, 3, 60])
@pytest.mark.parametrize("causal", [False, True])
def test_offsets_with_a_window_equal_a_mask(reach: int, causal: bool) -> None:
    """On other devices than the kernel's."""
    q, k, v = inputs = operands()
    ids = torch.tensor(SEGMENTS["documents"])
    mask = allowed(ids, reach) & (torch.ones(TOKENS, TOKENS).tril().bool() if causal else True)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    documents = DocumentOffsets.of(ids, causal=causal)._replace(reach=reach)
    assert_equal(attend(q, k, v, documents), expected, inputs)


def test_dropped_weights_are_in_the_window() -> None:
    """In training on a CPU, with its own kernel: weights have the mean that they have without."""
    values = torch.eye(TOKENS).expand(1, 64, TOKENS, TOKENS)
    q = torch.zeros(1, 64, TOKENS, 4, requires_grad=True)
    blocks = LocalBlocks.from_segments(None, q[:, 0], 3, size=8)
    weights = attend(q, q, values, blocks, dropout=0.5).mean(1)[0]
    near = allowed(None, 3)[0, 0].float()
    assert weights[near == 0].abs().max() == 0
    assert (weights - near / near.sum(1, keepdim=True)).abs().max() < 0.15


class Calls(TorchFunctionMode):
    """Records the shapes of queries and keys."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs = list[int]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            q, k = args[:2]
            self.pairs.append(q.shape[0] * q.shape[2] * k.shape[2])
        return func(*args, **(kwargs or {}))


def test_scores_are_of_windows_alone() -> None:
    """In each local layer of a long row, of 64 tokens to each side."""
    family: Any = get_family("modernbert")
    config = family.config_type(
        vocab_size=50,
        hidden_size=4,
        num_layers=3,
        num_heads=1,
        intermediate_size=4,
        pad_token_id=3,
    )
    model = family.model(config, "none").eval()
    tokens = 8192
    with torch.inference_mode(), Calls() as calls:
        model(torch.ones(1, tokens, dtype=torch.int64))
    assert calls.pairs == [tokens**2, tokens * 192, tokens * 192]


def places(tokens: int, segments: Tensor | None = None) -> Positions:
    ids = torch.arange(tokens)[None]
    return Positions(ids, ids, segments)


def test_a_short_row_has_a_mask() -> None:
    x = torch.zeros(1, 96, 4)
    assert isinstance(local_attention(x, None, places(96), 32), Tensor)
    longer = torch.zeros(1, 97, 4)
    assert isinstance(local_attention(longer, None, places(97), 32), LocalBlocks)
    with masks_only():
        assert isinstance(local_attention(longer, None, places(97), 32), Tensor)


def test_a_mask_is_not_ignored_where_its_segments_are_unknown() -> None:
    real = torch.ones(1, 200, dtype=torch.int64)
    real[:, 150:] = 0
    x = torch.zeros(1, 200, 4)
    result = local_attention(x, padding_mask(real, x.dtype), places(200), 16)
    assert isinstance(result, Tensor)
    assert (result[..., 150:] < -1e30).all() and result[0, 0, 100, 90] == 0


def test_captured_attention_has_all_tokens() -> None:
    family: Any = get_family("modernbert")
    model = family.model(family.sizes()["tiny"], "none").eval()
    ids = torch.randint(5, 100, (2, 120))
    expected = model(ids)["last_hidden_state"]
    with capture(model, attention=(1,)) as captured:
        outputs = model(ids)["last_hidden_state"]
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-5)
    weights = captured.attention[1]
    assert weights.shape == (2, 2, 120, 120)
    place = torch.arange(120)
    assert weights[..., (place[:, None] - place).abs() > 8].abs().max() == 0


@pytest.mark.parametrize(
    ("rows", "one"),
    [
        ([[0, 1, 1, 0]], True),
        ([[1, 1, 1, 1], [0, 0, 0, 0]], True),
        ([[1, 1, 1, 1], [1, 0, 1, 1]], False),
    ],
)
def test_padding_within_a_row_is_noticed(rows: list[list[int]], one: bool) -> None:
    assert one_segment_a_row(torch.tensor(rows)) is one
