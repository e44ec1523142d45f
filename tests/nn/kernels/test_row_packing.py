"""Padded batches that a model computes in packed rows."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from tests.families.every import every_family
from zoo.adapted_models.registry import ADAPTERS, parse_adapter
from zoo.adapted_models.targets import AdaptableModel
from zoo.families.onnx import OnnxSpec
from zoo.families.random_inputs import random_inputs
from zoo.nn.capture import capture
from zoo.nn.encoder import packs_in_one_row, supports_packed_rows
from zoo.nn.kernels import packed_attention
from zoo.nn.kernels.row_packing import (
    PackedRows,
    first_fit_decreasing,
    packing_in_inference,
)
from zoo.nn.layers.dropout import Dropout
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.transformer import CountedEmbeddings
from zoo.plugins import get_family

LENGTHS = (3, 9, 4, 5, 1)
PACKING = ("bert", "roberta", "albert", "distilbert", "electra", "deberta", "modernbert", "gpt")


def backbones_and_heads() -> Iterator[Any]:
    """Yield families with their heads; ``long`` for labels, unless they are BERT's."""
    for family in every_family(PACKING):
        (name,) = family.values
        for head in get_family(name).heads():
            usual = name == "bert" or head in ("none", "causal-lm")
            yield pytest.param(name, head, marks=family.marks if usual else pytest.mark.long)


def test_first_fit_decreasing() -> None:
    assert first_fit_decreasing([3, 9, 4, 5, 1], 9) == [[1], [3, 2], [0, 4]]


def test_tokens_of_packed_rows() -> None:
    """The rows of LENGTHS fill two rows of nine tokens, and four tokens of a third one."""
    lengths, columns = torch.tensor(LENGTHS), torch.arange(12)
    mask = (columns < lengths[:, None]).long()
    ids = 100 * torch.arange(1, 6)[:, None] + columns
    rows = PackedRows.of(mask)
    expected = [
        [*range(200, 209)],
        [*range(400, 405), *range(300, 304)],
        [100, 101, 102, 500, *[100] * 5],
    ]
    assert rows.pack(ids).tolist() == expected
    assert rows.document_ids.tolist() == [[1] * 9, [1] * 5 + [2] * 4, [1, 1, 1, 2] + [0] * 5]
    assert rows.position_ids[1].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
    hidden = rows.pack(ids)[..., None].double()
    assert (rows.unpack(hidden)[..., 0] == ids)[mask.bool()].all()
    row = PackedRows.of(mask, one_row=True)
    assert row.document_ids.tolist() == [[1] * 9 + [2] * 5 + [3] * 4 + [4] * 3 + [5]]
    assert (row.unpack(row.pack(ids)[..., None].double())[..., 0] == ids)[mask.bool()].all()


def without_dropout(config: Any) -> Any:
    names = [name for name in config.__struct_fields__ if name.endswith("dropout")]
    return msgspec.structs.replace(config, **dict.fromkeys(names, 0.0))


def tokens_alone(output: Tensor, axes: tuple[str | int, ...], mask: Tensor) -> Tensor:
    """Return an output without the vectors of padding."""
    assert axes[0] == "batch"
    return output[mask.bool()] if "tokens" in axes else output


@pytest.mark.by_default("deberta-none", "gpt-causal-lm")
@pytest.mark.parametrize(("family", "head"), list(backbones_and_heads()))
def test_outputs_and_gradients_are_those_of_padded_rows(family: str, head: str) -> None:
    """In float64, of the tiny size without dropout."""
    plugin = get_family(family)
    config = without_dropout(plugin.sizes()["tiny"])
    spec: OnnxSpec = plugin.onnx(config, head)
    inputs = random_inputs(spec, config, LENGTHS)
    torch.manual_seed(0)
    model: Any = plugin.model(config, head).double().train()
    assert supports_packed_rows(model)
    for module in model.modules():
        if isinstance(module, Dropout):  # of heads with a fixed probability
            module.p = 0.0
    lengths = list[int]()
    model.embeddings.register_forward_hook(lambda *args: lengths.append(args[1][0].shape[0]))
    results = []
    for packs_rows in (False, True):
        model.packs_rows = packs_rows
        outputs = model(**inputs)
        torch.manual_seed(1)
        mask = inputs["attention_mask"]
        real = [tokens_alone(outputs[name], spec.outputs[name], mask) for name in spec.outputs]
        loss = torch.stack([(output * torch.randn_like(output)).sum() for output in real]).sum()
        gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        results.append([*real, *(g for g in gradients if g is not None)])
    # a learned bias for each pair of tokens takes a mask of all pairs of a row
    assert lengths[1] < lengths[0]
    assert (lengths[1] == 1) is (family != "deberta")
    for padded, packed in zip(*results, strict=True):
        torch.testing.assert_close(packed, padded, rtol=1e-9, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "method"), [*(("bert", name) for name in ADAPTERS.built_in), ("gpt", "prefix")]
)
def test_adapted_models_compute_the_texts_of_one_row(
    family: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they compute padded rows. Attention gets documents, and no mask of all pairs."""
    monkeypatch.setattr(packed_attention, "PAIRS_OF_A_CALL", 0)
    plugin = get_family(family)
    config = without_dropout(plugin.sizes()["tiny"])
    inputs = random_inputs(plugin.onnx(config, "none"), config, LENGTHS)
    torch.manual_seed(0)
    model: Any = plugin.model(config, "none").double().train()
    adaptable = AdaptableModel.from_model(model, plugin, config, "none")
    virtual = {"num_virtual_tokens": 3} if method in ("prefix", "prompt") else {}
    parse_adapter({"method": method, **virtual}).add_to(model, adaptable)
    model.double()
    masks, results = list[Any](), []
    trained = [p for n, p in model.named_parameters() if n.startswith("layers.") or "adapter" in n]
    for layer in model.layers:
        layer.attention.register_forward_pre_hook(lambda _, args: masks.append(args[1]))
    real = inputs["attention_mask"].bool()
    for packs_rows in (False, True):
        model.packs_rows = packs_rows
        hidden = model(**inputs)["last_hidden_state"][real]
        torch.manual_seed(1)
        loss = (hidden * torch.randn_like(hidden)).sum()
        results.append([hidden, *torch.autograd.grad(loss, trained)])
    kinds = [type(mask) is DocumentOffsets for mask in masks]
    assert kinds == [False] * (len(kinds) // 2) + [True] * (len(kinds) // 2)
    for padded, packed in zip(*results, strict=True):
        torch.testing.assert_close(packed, padded, rtol=1e-9, atol=1e-9)


@pytest.mark.by_default("bert-question-answering")
@pytest.mark.parametrize(("family", "head"), list(backbones_and_heads()))
def test_inference_packs_rows_where_it_is_asked_for(family: str, head: str) -> None:
    """In float64, of the tiny size; batches of models with other attention stay as they are."""
    plugin = get_family(family)
    config = plugin.sizes()["tiny"]
    spec: OnnxSpec = plugin.onnx(config, head)
    inputs = random_inputs(spec, config, LENGTHS)
    torch.manual_seed(0)
    model: Any = plugin.model(config, head).double().eval()
    lengths: list[int] = []
    model.embeddings.register_forward_hook(lambda *args: lengths.append(args[1][0].shape[0]))
    pad = getattr(model.embeddings, "padding", 0)
    left_padded = {name: tensor.flip(-1) for name, tensor in inputs.items()}
    with torch.inference_mode():
        padded = model(**inputs)
        with packing_in_inference():
            packed = model(**inputs)
            model(**left_padded)
            model(**{**inputs, "input_ids": torch.full_like(inputs["input_ids"], pad)})
            with capture(model, hidden=(0,)):
                model(**inputs)
    with torch.no_grad(), packing_in_inference():
        model(**inputs)
    batch = inputs["input_ids"].shape[:-1].numel()
    one_row = 1 if packs_in_one_row(model) else batch
    # Where positions count the tokens that are not padding, a text of padding has others.
    counts_tokens = isinstance(model.embeddings, CountedEmbeddings)
    of_padding = batch if counts_tokens else one_row
    assert lengths == [batch, one_row, batch, of_padding, batch, batch]
    mask = inputs["attention_mask"]
    for name, axes in spec.outputs.items():
        torch.testing.assert_close(
            tokens_alone(packed[name], axes, mask),
            tokens_alone(padded[name], axes, mask),
            rtol=1e-9,
            atol=1e-9,
        )


@pytest.mark.parametrize("family", ["t5", "elmo"])
def test_models_that_take_no_packed_batches(family: str) -> None:
    plugin = get_family(family)
    assert not supports_packed_rows(plugin.model(plugin.sizes()["tiny"], "none"))
