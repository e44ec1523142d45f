"""Relative positions of DeBERTa, and their tensors that inference computes once."""

from typing import Any

import pytest
import torch

from tests.families.deberta.versions import DEBERTA, FIRST, THIRD, VERSIONS
from tests.families.parity import random_model
from zoo.conformance.comparison import compare_with_reference
from zoo.families.random_inputs import random_inputs
from zoo.nn.layers.relative import shift
from zoo_deberta import attention
from zoo_deberta.positions import bucket


@pytest.mark.parametrize(("buckets", "farthest"), [(256, 512), (8, 40), (32, 64), (6, 16)])
def test_buckets_are_the_reference(buckets: int, farthest: int) -> None:
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    differences = torch.arange(-2 * farthest, 2 * farthest)
    expected = make_log_bucket_position(differences, buckets, farthest).long().tolist()
    assert [bucket(d, buckets, farthest) for d in differences.tolist()] == expected


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_shift_aligns_differences(tokens: int) -> None:
    differences = torch.arange(tokens - 1, -tokens - 1, -1).expand(2, tokens, -1).contiguous()
    place = torch.arange(tokens)
    shifted = shift(differences)
    assert torch.equal(shifted, (place[:, None] - place).expand(2, -1, -1))
    assert shifted.data_ptr() == differences[:, :, tokens - 1 :].data_ptr()  # a view, no copy


@pytest.mark.by_default("first-700", "second-1", "second-1500", "third-1073741824", "third-700")
@pytest.mark.parametrize("group", [1, 700, 1500, 1 << 30])
@pytest.mark.parametrize("version", VERSIONS)
def test_cached_positions_and_groups_equal_the_reference(
    version: str, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "GROUP", group)
    model: Any = random_model(DEBERTA, VERSIONS[version], "masked-lm")
    names = list(model.state_dict())
    model.optimize_for_inference()
    assert list(model.state_dict()) == names
    for lengths in ((1,), (9, 7, 4), (40, 12)):
        inputs = random_inputs(DEBERTA.onnx(VERSIONS[version], "masked-lm"), FIRST, lengths)
        comparison = compare_with_reference(
            DEBERTA, VERSIONS[version], "masked-lm", model, inputs=inputs, tolerance=1e-9
        )
        assert comparison.first_diverging is None


def test_optimized_model_can_be_trained() -> None:
    model: Any = random_model(DEBERTA, THIRD, "none").requires_grad_(True)
    model.optimize_for_inference()
    inputs = random_inputs(DEBERTA.onnx(THIRD, "none"), THIRD, (9, 4))
    model(**inputs)["last_hidden_state"].square().sum().backward()
    assert model.relative.weight.grad.abs().sum() > 0
    with torch.no_grad():  # inference uses cached tensors, training does not
        stale = model(**inputs)["last_hidden_state"]
        model.relative.weight.mul_(-1)
        assert torch.equal(model(**inputs)["last_hidden_state"], stale)
        model.optimize_for_inference()
    before = model(**inputs)["last_hidden_state"].detach()
    with torch.no_grad():
        hidden = model(**inputs)["last_hidden_state"]
    assert (hidden - before).abs().max() <= 1e-9 < (hidden - stale).abs().max()


# tests/exporting has the graph of this model.
@pytest.mark.long
def test_optimized_model_can_be_traced() -> None:
    model: Any = random_model(DEBERTA, THIRD, "none")
    inputs = random_inputs(DEBERTA.onnx(THIRD, "none"), THIRD, (9, 4))
    with torch.no_grad():
        expected = model(**inputs)["last_hidden_state"]
        model.optimize_for_inference()
        traced = torch.export.export(model, (), inputs).module()
        hidden = traced(**inputs)["last_hidden_state"]
    assert (hidden - expected).abs().max() <= 1e-12
