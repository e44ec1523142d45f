"""Hidden states of some tokens: equal to those of all, and computed alone in the last block."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.families.every import every_family, families_with
from zoo.families.base import Family
from zoo.nn import transformer
from zoo.nn.adapters.linear import attach_adapter
from zoo.nn.adapters.low_rank import LoRAAdapter
from zoo.nn.capture import capture
from zoo.nn.encoder import Encoder
from zoo.nn.kernels import packed_attention
from zoo.nn.kernels.selected_queries import attend_from_positions
from zoo.nn.transformer import FeedForward, ParallelBlock, PostNormBlock, PreNormBlock
from zoo.objectives.losses.predictions import encode_at
from zoo.plugins import get_family

IDS = torch.tensor([[1, 1, 1, 2, 2, 3, 3, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1]])
POSITION_IDS = torch.tensor([[0, 1, 2, 0, 1, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5, 6, 7, 8]])
POSITIONS = torch.tensor([4, 0, 17, 9, 4])  # not in order, and one twice
CLASSIFIERS = set(families_with("sequence-classification")) - {"elmo"}  # which reads characters


def build(family: Family, head: str) -> Any:
    torch.manual_seed(0)
    model: Any = family.model(family.sizes()["tiny"], head).double().eval()
    for parameter in model.parameters():  # no zeros, which hide what is not computed
        nn.init.normal_(parameter, std=0.1)
    return model


def assert_same_gradients(value: Tensor, expected: Tensor, model: nn.Module) -> None:
    weight = torch.randn(value.shape, dtype=value.dtype)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    results, references = (
        torch.autograd.grad((x * weight).sum(), parameters, allow_unused=True)
        for x in (value, expected)
    )
    assert (value - expected).abs().max() < 1e-12
    for result, reference in zip(results, references, strict=True):
        assert (result is None) == (reference is None)
        if result is not None and reference is not None:
            assert (result - reference).abs().max() <= 1e-10 * (1 + reference.abs().max())


@pytest.mark.by_default("bert")
@pytest.mark.parametrize("name", every_family(families_with("masked-lm")))
def test_hidden_states_and_gradients_equal_those_of_all_tokens(name: str) -> None:
    model = build(get_family(name), "masked-lm")
    inputs = {
        "input_ids": torch.randint(5, 100, IDS.shape),
        "position_ids": POSITION_IDS,
        "document_ids": IDS,
    }
    expected = model.encode(**inputs).flatten(0, 1)[POSITIONS]
    assert_same_gradients(encode_at(model, inputs, POSITIONS), expected, model)


@pytest.mark.by_default("bert-packed", "gpt-padded", "t5-packed")
@pytest.mark.parametrize("packs", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("name", every_family(sorted(CLASSIFIERS)))
def test_classifiers_are_trained_on_the_logits_of_their_evaluation(name: str, packs: bool) -> None:
    model = build(get_family(name), "sequence-classification")
    inputs = torch.randint(5, 100, IDS.shape), (IDS != 0).long()
    expected = model(*inputs)["logits"]
    for module in model.modules():
        if "dropout" in type(module).__name__.lower():
            module.p = 0.0
        elif isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    model.train()
    model.packs_rows = packs and isinstance(model, Encoder)
    assert_same_gradients(model(*inputs)["logits"], expected, model)


def test_attention_within_documents_computes_the_queries_that_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also with an adapter, which computes all of them, and in documents that are not read."""
    monkeypatch.setattr(packed_attention, "supports_offsets", lambda x, document_ids: True)
    model = build(get_family("bert"), "masked-lm")
    inputs = {
        "input_ids": torch.randint(5, 100, IDS.shape),
        "position_ids": POSITION_IDS,
        "document_ids": IDS,
    }
    queries = list[int]()

    def attend_and_count(q: Tensor, *args: Any, **options: Any) -> Tensor:
        queries.append(q.shape[2])
        return attend_from_positions(q, *args, **options)

    monkeypatch.setattr(transformer, "attend_from_positions", attend_and_count)
    expected = model.encode(**inputs).flatten(0, 1)[POSITIONS]
    assert not queries
    assert_same_gradients(encode_at(model, inputs, POSITIONS), expected, model)
    assert queries == [5]
    qkv = model.layers[-1].attention.qkv
    adapter = LoRAAdapter({"value": range(256, 384)}, 384, 128, rank=2, scaling=1.0).double()
    attach_adapter(qkv, adapter)
    nn.init.normal_(adapter.lora_B["value"])
    expected = model.encode(**inputs).flatten(0, 1)[POSITIONS]
    assert_same_gradients(encode_at(model, inputs, POSITIONS), expected, model)
    assert queries == [5, 5]


def counts_of_tokens(model: Any, run: Any) -> list[int]:
    """Return the number of tokens that each feed-forward network computes."""
    counts = list[int]()
    hooks = [
        module.register_forward_hook(
            lambda module, args, output: counts.append(output.numel() // output.shape[-1])
        )
        for module in model.modules()
        if isinstance(module, FeedForward)
    ]
    run()
    for hook in hooks:
        hook.remove()
    return counts


@pytest.mark.parametrize(
    "name", every_family(["bert", "roberta", "albert", "distilbert", "electra", "modernbert"])
)
def test_the_last_block_computes_what_is_read(name: str) -> None:
    model = build(get_family(name), "masked-lm")
    tokens, blocks = torch.randint(5, 100, IDS.shape), len(model.order)
    run = lambda: model.encode_at(POSITIONS, input_ids=tokens)  # noqa: E731
    assert counts_of_tokens(model, run) == [18] * (blocks - 1) + [5]
    with capture(model, hidden=(-1,)) as captured:
        assert counts_of_tokens(model, run) == [18] * blocks
    assert captured.hidden[-1].shape[:2] == (2, 9)
    assert counts_of_tokens(model, lambda: model.encode(tokens)) == [18] * blocks


def test_classifiers_compute_first_tokens_in_training_alone() -> None:
    model = build(get_family("bert"), "sequence-classification")
    tokens, blocks = torch.randint(5, 100, IDS.shape), len(model.order)
    assert counts_of_tokens(model, lambda: model(tokens)) == [18] * blocks
    model.train()
    assert counts_of_tokens(model, lambda: model(tokens)) == [18] * (blocks - 1) + [2]
    model.pooling = "mean"
    assert counts_of_tokens(model, lambda: model(tokens)) == [18] * blocks
    token_model = build(get_family("bert"), "token-classification").train()
    assert counts_of_tokens(token_model, lambda: token_model(tokens)) == [18] * blocks


class AllTokensBlock(PostNormBlock):
    """A block of a plugin, whose ``forward`` knows no positions."""

    def forward(self, x: Tensor, *attention_args: Any) -> Tensor:  # type: ignore[override]
        return super().forward(x, *attention_args) + 1


class Reversal(nn.Module):
    """In place of attention: half of the token on the other side of the row."""

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return x.flip(1) * 0.5


class Waves(nn.Module):
    """In place of embeddings."""

    def forward(self, input_ids: Tensor, types: None, position_ids: None) -> Tensor:
        return torch.sin(input_ids[..., None] * torch.arange(1, 9, dtype=torch.float64))


class Sum(nn.Module):
    """In place of a learned mix."""

    def forward(self, states: list[Tensor]) -> Tensor:
        return torch.stack(states).sum(0)


@pytest.mark.parametrize("block_type", [PostNormBlock, PreNormBlock, ParallelBlock, AllTokensBlock])
@pytest.mark.parametrize("mix", [None, Sum()], ids=["last", "mix"])
def test_blocks_return_some_tokens(block_type: type[PostNormBlock], mix: nn.Module | None) -> None:
    torch.manual_seed(0)
    blocks = [
        block_type(
            Reversal(),
            hidden_size=8,
            intermediate_size=16,
            act="gelu",
            layer_norm_eps=1e-6,
            dropout=0.0,
        )
        for _ in range(2)
    ]
    model = Encoder(Waves(), blocks, final_norm=nn.LayerNorm(8), mix=mix).double()
    tokens = torch.randint(5, 100, IDS.shape)
    expected = model.encode(tokens).flatten(0, 1)[POSITIONS]
    assert_same_gradients(model.encode_at(POSITIONS, input_ids=tokens), expected, model)
    alone = block_type is not AllTokensBlock and mix is None
    counts = counts_of_tokens(model, lambda: model.encode_at(POSITIONS, input_ids=tokens))
    assert counts == [18, 5 if alone else 18]


@pytest.mark.long
def test_recomputed_activations_give_the_same_gradients() -> None:
    model = build(get_family("bert"), "masked-lm")
    tokens = torch.randint(5, 100, IDS.shape)
    expected = model.encode_at(POSITIONS, input_ids=tokens)
    other = build(get_family("bert"), "masked-lm")
    for layer in other.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    value = other.encode_at(POSITIONS, input_ids=tokens)
    weight = torch.randn_like(value)
    assert counts_of_tokens(other, value.sum().backward) == [5, *[18] * (len(other.order) - 1)]
    other.zero_grad()
    value = other.encode_at(POSITIONS, input_ids=tokens)
    gradients = [
        torch.autograd.grad((x * weight).sum(), list(module.layers.parameters()))
        for x, module in ((value, other), (expected, model))
    ]
    for result, reference in zip(*gradients, strict=True):
        assert (result - reference).abs().max() < 1e-10
