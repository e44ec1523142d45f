"""Sequence autoencoding: samples by hand, and the loss by plain torch in float64."""

from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tests.families.parity import random_model
from tests.objectives.test_causal import GPT, NO_END, RNG, SMALL, WORDS, read
from tests.objectives.words import split
from zoo.conformance.hf_reference import reference_model
from zoo.data.rng import generator
from zoo.errors import UsageError
from zoo.objectives import objective_type
from zoo.objectives.base import Example
from zoo.objectives.sequence_autoencoder import SequenceAutoencoder
from zoo.plugins import get_family

END = 1


def objective(length: int) -> SequenceAutoencoder:
    return SequenceAutoencoder(WORDS, SMALL, length)


def rows(texts: list[list[int]], length: int, seed: int = 0) -> list[Example]:
    dataset = objective(length).dataset(split(*texts), seed)
    return [dataset.example(index, RNG) for index in range(len(dataset))]


def test_the_figure_of_the_paper() -> None:
    """Figure 1: W X Y Z, and after the end the same; without a loss before the end."""
    (row,) = rows([[5, 6, 7, 8]], 10)
    assert row.arrays["input_ids"].tolist() == [5, 6, 7, 8, END, 5, 6, 7, 8, 0]
    assert row.positions["label_positions"][1].tolist() == [4, 5, 6, 7, 8]
    assert row.values["labels"].tolist() == [5, 6, 7, 8, END]
    assert row.arrays["position_ids"].tolist() == [*range(9), 0]
    assert row.counts == {"causal-lm": 5}


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(5, 499), min_size=1, max_size=40), min_size=1, max_size=8),
    st.integers(3, 50),
    st.integers(0, 9),
)
def test_every_token_is_written_once(texts: list[list[int]], length: int, seed: int) -> None:
    if length < 5:
        with pytest.raises(UsageError, match=f"rows of {length} tokens have no place for text"):
            rows(texts, length, seed)
        return
    pieces = []
    for row in rows(texts, length, seed):
        assert len(row.arrays["input_ids"]) == length
        written = dict(
            zip(row.positions["label_positions"][1].tolist(), row.values["labels"], strict=True)
        )
        assert len(written) <= (length + 1) // 2
        for number, sequence in enumerate(read(row), 1):
            size = len(sequence) // 2
            piece = sequence[:size]
            assert sequence == [*piece, END, *piece]
            places = np.flatnonzero(row.arrays["document_ids"] == number).tolist()
            assert [written.pop(place) for place in places[size:]] == [*piece, END]
            pieces.append(piece)
        assert not written
    assert sorted(chain.from_iterable(pieces)) == sorted(chain.from_iterable(texts))
    joined = [",".join(map(str, text)) for text in texts]
    assert [p for p in pieces if not any(",".join(map(str, p)) in text for text in joined)] == []


def test_rows_are_functions_of_the_seed() -> None:
    texts = generator(0).integers(5, 499, size=(30, 9)).tolist()
    ids = [
        [row.arrays["input_ids"].tolist() for row in rows(texts, 40, seed)] for seed in (0, 0, 1)
    ]
    assert ids[0] == ids[1] != ids[2]


def test_the_loss_equals_plain_torch_in_float64() -> None:
    """Each text in a row of its own, by the reference library's model."""
    texts = generator(1).integers(5, 499, size=(12, 7)).tolist()
    task = objective(32)
    model: Any = random_model(GPT, SMALL, task.head).double()
    reference = reference_model(GPT, SMALL, task.head, model.state_dict()).double().eval()
    examples = rows(texts, 32)
    expected = torch.zeros((), dtype=torch.float64)
    count = 0
    for ids in (sequence for row in examples for sequence in read(row)):
        text = ids[: len(ids) // 2]
        with torch.no_grad():
            logits = reference(input_ids=torch.tensor([ids])).logits[0, len(text) :]
        expected += F.cross_entropy(logits, torch.tensor([*text, END]), reduction="sum")
        count += len(text) + 1
    batch = task.collate(examples)
    assert batch.counts == {"causal-lm": count}
    loss = task.compute_loss(model, batch.tensors)
    assert float(loss.sums["causal-lm"].detach()) == pytest.approx(float(expected), rel=1e-12)


def test_models_and_tokenizers_that_cannot() -> None:
    bert = get_family("bert")
    with pytest.raises(
        UsageError, match="bert cannot learn sequence-autoencoder: bert has no head"
    ):
        objective_type(bert, bert.sizes()["tiny"], SequenceAutoencoder.name)
    with pytest.raises(UsageError, match="the tokenizer has no eos token"):
        SequenceAutoencoder(NO_END, SMALL, 16).dataset(split([5, 6]), 0)
