"""The span boundary objective, compared with formulas in numpy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families.every import every_family
from tests.families.parity import random_model
from tests.objectives.making import corpus, made, span_boundary
from tests.objectives.pieces import SIZE, packed, rows
from zoo.data.rng import generator
from zoo.families.random_inputs import randomize_weights
from zoo.objectives.examples.packing import PackedRow
from zoo.objectives.masked import MASKED_LM
from zoo.objectives.span_boundary import SPAN_BOUNDARY, find_boundaries
from zoo.plugins import get_family


def test_a_hand_worked_row() -> None:
    """Spans of two texts: one inside, one at the start, and one at the end."""
    row = packed([5, 6, 7, 8, 9], [10, 11, 12, 13], length=14)
    # CLS 5 6 7 8 9 SEP | CLS 10 11 12 13 SEP | PAD
    hidden = np.array([2, 3, 4, 8, 10, 11])
    positions, offsets, left, right = find_boundaries(row, hidden)
    assert positions.tolist() == [2, 3, 4]
    assert offsets.tolist() == [0, 1, 2]
    assert left.tolist() == [1, 1, 1]
    assert right.tolist() == [5, 5, 5]


def test_tokens_after_the_twentieth_are_not_predicted() -> None:
    positions, offsets, _, _ = find_boundaries(packed(range(5, 40)), np.arange(2, 27))
    assert positions.tolist() == list(range(2, 22))
    assert offsets.tolist() == list(range(20))


@settings(deadline=None)
@given(row=rows, seed=st.integers(0, 2**32))
def test_boundaries_are_seen_and_of_the_same_text(row: PackedRow, seed: int) -> None:
    task = span_boundary().mask_row(row, generator(seed))
    hidden = set(task.positions["label_positions"][1].tolist())
    labels, offsets = task.values["span_labels"], task.values["span_offsets"]
    left, right = task.positions["lefts"][1], task.positions["rights"][1]
    assert task.counts == {MASKED_LM: len(hidden), SPAN_BOUNDARY: len(labels)}
    for label, offset, before, behind in zip(labels, offsets, left, right, strict=True):
        place = before + 1 + offset
        assert before < place < behind
        assert hidden.issuperset(range(before + 1, behind))
        assert {before, behind}.isdisjoint(hidden)
        assert row.is_text[[before, behind]].all()
        assert len(set(row.document_ids[before : behind + 1].tolist())) == 1
        assert row.input_ids[place] == label


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


@pytest.mark.parametrize("name", every_family(["bert", "albert", "distilbert"]))
def test_the_loss_equals_the_formulas_of_the_paper(name: str) -> None:
    """Section 3.2: h0 = [left; right; position], h1, h2, and the cross-entropy over the tokens."""
    family, task = get_family(name), span_boundary(name)
    model: Any = task.model(family, task.config).double().eval()
    randomize_weights(model)
    batch = task.collate(made(task, corpus())[:8])
    assert batch.counts[SPAN_BOUNDARY] > 10
    outcome = task.compute_loss(model, batch.tensors)
    inputs = {k: batch.tensors[k] for k in ("input_ids", "document_ids", "position_ids")}
    with torch.no_grad():
        hidden = model.model.encode(**inputs).flatten(0, 1).numpy()
    p = {name: value.numpy() for name, value in model.boundary_head.state_dict().items()}
    t = {name: tensor.numpy() for name, tensor in batch.tensors.items()}
    eps = model.model.embeddings.norm.eps
    h = np.concatenate(
        [hidden[t["lefts"]], hidden[t["rights"]], p["positions.weight"][t["span_offsets"]]], axis=1
    )
    for layer in ("inner", "outer"):
        h = gelu(h @ p[f"{layer}.weight"].T + p[f"{layer}.bias"])
        h = norm(h, p[f"{layer}_norm.weight"], p[f"{layer}_norm.bias"], eps)
    scores = h @ model.model.embeddings.tokens.weight.detach().numpy().T + p["bias"]
    top = scores.max(-1, keepdims=True)
    chances = scores - top - np.log(np.exp(scores - top).sum(-1, keepdims=True))
    expected = -chances[np.arange(len(h)), t["span_labels"]].sum()
    assert float(outcome.sums[SPAN_BOUNDARY].detach()) == pytest.approx(expected, rel=1e-6)
    assert set(outcome.sums) == set(task.loss_weights) == {MASKED_LM, SPAN_BOUNDARY}


def test_the_final_model_has_no_boundary_head() -> None:
    task, bert = span_boundary(), get_family("bert")
    model: Any = task.model(bert, task.config)
    network = task.models_to_save(model)["model"]
    plain = random_model(bert, task.config, "masked-lm")
    assert set(network.module.state_dict()) == set(plain.state_dict())
    assert network.head == "masked-lm"
    assert model.boundary_head.bias.shape == (SIZE,)
