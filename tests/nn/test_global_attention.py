"""Windows with global tokens, compared with the formula over all pairs of tokens."""

from typing import Any

import pytest
import torch
from torch import Tensor

from zoo.nn.attention.masks import padding_mask
from zoo.nn.capture import capture
from zoo.nn.global_attention import GlobalSelfAttention
from zoo.nn.global_tokens import GlobalTokenRule
from zoo.nn.kernels.local_attention import local_attention
from zoo.nn.kernels.packed_attention import masks_only
from zoo.nn.local_blocks import LocalAndGlobal, RowBlocks
from zoo.nn.positions import Positions, position_in_document

WIDTH = 24
SEPARATOR = 2
RULES = ("first", "separators", (0, 3, 7, 50))


@pytest.fixture(scope="module")
def attention() -> GlobalSelfAttention:
    torch.manual_seed(0)
    module = GlobalSelfAttention(hidden_size=WIDTH, num_heads=3, dropout=0.0)
    return module.double().eval()


def batch_of(length: int, kind: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return two rows: embeddings, token ids, and segments."""
    draw = torch.Generator().manual_seed(length)
    x = torch.randn(2, length, WIDTH, dtype=torch.double, generator=draw).requires_grad_()
    input_ids = torch.randint(0, 30, (2, length), generator=draw)
    if kind == "all":
        return x, input_ids, None
    segments = torch.ones(2, length, dtype=torch.int64)
    if kind == "padded":
        segments[1, length - length // 3 :] = 0
    else:
        segments[0, length // 4 :] = 2
        segments[1, length // 2 :] = 2
        segments[1, length - length // 5 :] = 0
    return x, input_ids, segments


def by_formula(
    module: GlobalSelfAttention, x: Tensor, positions: Positions, reach: int
) -> tuple[Tensor, Tensor]:
    """Return output and probabilities: arXiv:2004.05150, section 3.1, over all pairs."""
    length = x.shape[1]
    is_global = positions.is_global
    assert is_global is not None
    places = torch.arange(length)
    allowed = ((places[:, None] - places).abs() <= reach)[None]
    allowed = allowed | is_global[:, None, :] | is_global[:, :, None]
    if positions.segments is not None:
        allowed = allowed & (positions.segments[:, None] == positions.segments[:, :, None])
    q, k, v = module.split(module.qkv(x), 3)
    global_q, global_k, global_v = module.split(module.global_qkv(x), 3)
    of_global = is_global[:, None, :, None]
    scores = torch.where(of_global, global_q @ global_k.mT, q @ k.mT) * module.heads[1] ** -0.5
    probabilities = scores.masked_fill(~allowed[:, None], -torch.inf).softmax(-1)
    mixed = torch.where(of_global, probabilities @ global_v, probabilities @ v)
    return module.out(mixed.transpose(1, 2).flatten(-2)), probabilities


def gradients(module: GlobalSelfAttention, x: Tensor, output: Tensor, real: Tensor) -> list[Tensor]:
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    tensors = [x, *module.parameters()]
    return list(torch.autograd.grad((output * weight * real).sum(), tensors))


@pytest.mark.parametrize("kind", ["all", "padded", "packed"])
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(
    ("length", "reach"), [(1, 8), (33, 8), (100, 8), (257, 40), (160, 40), (100, 1)]
)
def test_outputs_and_gradients_equal_the_formula(
    attention: GlobalSelfAttention, length: int, reach: int, rule: Any, kind: str
) -> None:
    x, input_ids, segments = batch_of(length, kind)
    places = torch.arange(length)[None]
    if kind == "packed":
        assert segments is not None
        places = position_in_document(segments)
    positions = Positions(places, places, segments)
    positions = GlobalTokenRule(rule, SEPARATOR).mark(input_ids, positions)
    row = torch.arange(length)[None]
    on_row = Positions(row, row, segments, positions.is_global)
    real = torch.ones(2, length, 1) if segments is None else (segments != 0)[..., None]
    mask: Any = None
    if segments is not None:
        masked = segments[:, :, None] != segments[:, None, :]
        mask = masked[:, None].double() * torch.finfo(torch.double).min / 2
    expected, _ = by_formula(attention, x, positions, reach)
    expected_gradients = gradients(attention, x, expected, real)
    results = [local_attention(x, mask, on_row, reach)]
    with masks_only():
        results.append(local_attention(x, mask, on_row, reach))
    for result in results:
        output = attention(x, result)
        assert ((output - expected) * real).abs().max() < 1e-12
        for ours, theirs in zip(
            gradients(attention, x, output, real), expected_gradients, strict=True
        ):
            assert (ours - theirs).abs().max() < 1e-10


def test_long_rows_have_blocks_and_short_ones_a_mask(attention: GlobalSelfAttention) -> None:
    kinds = []
    for length in (96, 97):
        x, input_ids, _ = batch_of(length, "all")
        places = torch.arange(length)[None]
        positions = GlobalTokenRule("first", SEPARATOR).mark(input_ids, Positions(places, places))
        result = local_attention(x, None, positions, 32)
        assert isinstance(result, LocalAndGlobal)
        kinds.append(type(result.local))
    assert kinds == [Tensor, RowBlocks]


def test_a_batch_without_global_tokens_has_windows_only(attention: GlobalSelfAttention) -> None:
    x, _, _ = batch_of(200, "all")
    places = torch.arange(200)[None]
    positions = GlobalTokenRule((300,), SEPARATOR).mark(
        torch.zeros(2, 200).long(), Positions(places, places)
    )
    assert not isinstance(local_attention(x, None, positions, 16), LocalAndGlobal)


def test_captured_attention_is_the_one_that_is_used(attention: GlobalSelfAttention) -> None:
    x, input_ids, segments = batch_of(60, "padded")
    places = torch.arange(60)[None]
    positions = Positions(places, places, segments)
    positions = GlobalTokenRule((0, 5), SEPARATOR).mark(input_ids, positions)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([attention])

        def forward(self, x: Tensor) -> Tensor:
            mask = local_attention(x, padding_mask(segments, x.dtype), positions, 4)
            return self.layers[0](x, mask)  # type: ignore[no-any-return]

    model = Model()
    with capture(model, attention="all") as captured:
        output = model(x)
    assert segments is not None
    real = (segments != 0)[:, :, None]
    expected, probabilities = by_formula(attention, x, positions, 4)
    assert ((output - expected) * real).abs().max() < 1e-12
    assert ((captured.attention[0] - probabilities) * real[:, None]).abs().max() < 1e-12
    assert ((model(x) - expected) * real).abs().max() < 1e-12


def test_weights_are_dropped_at_the_rate(attention: GlobalSelfAttention) -> None:
    """The output of a global token has the mean that it has without dropout."""
    torch.manual_seed(0)
    module = GlobalSelfAttention(hidden_size=WIDTH, num_heads=3, dropout=0.5).double()
    x = torch.randn(1, 100, WIDTH, dtype=torch.double).expand(200, -1, -1)
    input_ids = torch.zeros(200, 100, dtype=torch.int64)
    places = torch.arange(100)[None]
    positions = GlobalTokenRule("first", SEPARATOR).mark(input_ids, Positions(places, places))
    one_row = GlobalTokenRule("first", SEPARATOR).mark(input_ids[:1], Positions(places, places))
    with torch.no_grad():
        expected, _ = by_formula(module, x[:1], one_row, 2)
        mask = local_attention(x, None, positions, 2)
        outputs = module(x, mask)[:, 0]
    assert outputs.std(0).min() > 1e-3
    error = (outputs.mean(0) - expected[0, 0]).abs()
    assert (error < 5 * outputs.std(0) / 200**0.5).all()


IDS = torch.tensor([[0, 7, 2, 2, 8, 9, 2, 1], [0, 7, 8, 2, 2, 9, 2, 1]])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("first", ["x.......", "x......."]),
        ("question", ["xx......", "xxx....."]),
        ("choice", ["....xxx.", ".....xx."]),
        ("separators", ["x.xx..x.", "x..xx.x."]),
        ((0, 4, 7), ["x...x...", "x...x..."]),
    ],
)
def test_rules(rule: Any, expected: list[str]) -> None:
    """Padding, which is the last token, is never global."""
    places = torch.arange(8)[None]
    positions = Positions(places, places, (IDS != 1).long())
    is_global = GlobalTokenRule(rule, SEPARATOR)(IDS, positions)
    assert [
        "".join("x" if token else "." for token in row) for row in is_global.tolist()
    ] == expected


@pytest.mark.parametrize("rule", ["first", "question", "choice", "separators", (0, 4)])
def test_rules_in_packed_rows_are_those_of_the_texts(rule: Any) -> None:
    module = GlobalTokenRule(rule, SEPARATOR)
    places = torch.arange(8)[None]
    positions = Positions(places, places, (IDS != 1).long())
    expected = module(IDS, positions)[:, :7].flatten()
    packed = torch.cat([IDS[0, :7], IDS[1, :7]])[None]
    documents = torch.tensor([[1] * 7 + [2] * 7])
    inside = position_in_document(documents)
    assert torch.equal(module(packed, Positions(inside, inside, documents))[0], expected)
