"""The causal objective: labels, and losses equal to the reference library's."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.families.parity import random_model
from tests.objectives.words import ROLES, counted, labels, split, texts, vocabulary
from zoo.conformance.hf_reference import reference_model
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.objectives import objective_type
from zoo.objectives.base import Example
from zoo.objectives.causal import CausalLanguageModelling
from zoo.objectives.examples.vocabulary import TokenizerView
from zoo.objectives.masked import model_inputs
from zoo.plugins import get_family
from zoo_gpt.config import GptConfig

GPT = get_family("gpt")
SMALL = GptConfig(vocab_size=500, hidden_size=24, num_layers=2, num_heads=2, max_positions=32)
WORDS = vocabulary(sentinels=0, size=500)  # pad 0, eos 1, unk 2
NO_END = vocabulary(roles={"unk": "<unk>"}, sentinels=0, size=500)
RNG = generator(0, "unused")


def objective(length: int, words: TokenizerView = WORDS) -> CausalLanguageModelling:
    return CausalLanguageModelling(words, SMALL, length)


def rows(split: Split, length: int, words: TokenizerView = WORDS, seed: int = 0) -> list[Example]:
    laid = objective(length, words).dataset(split, seed)
    return [laid.example(index, RNG) for index in range(len(laid))]


def read(row: Example) -> list[list[int]]:
    return texts(row.arrays["input_ids"], row.arrays["document_ids"])


def labelled_texts(row: Example) -> list[list[int]]:
    return labels(row, "input_ids", "document_ids")


# Labels


def test_every_token_and_the_end_of_a_document_are_predicted() -> None:
    (row,) = rows(split([5, 6, 7]), 6)
    assert row.arrays["input_ids"].tolist() == [1, 5, 6, 7, 0, 0]
    assert row.arrays["document_ids"].tolist() == [1, 1, 1, 1, 0, 0]
    assert row.arrays["position_ids"].tolist() == [0, 1, 2, 3, 0, 0]
    assert labelled_texts(row) == [[5, 6, 7, 1]]
    assert row.counts == {"causal-lm": 4}


def test_a_cut_document_has_no_false_end() -> None:
    first, second = rows(split([5, 6, 7, 8]), 3)
    assert (read(first), labelled_texts(first)) == ([[1, 5, 6]], [[5, 6, 7]])
    assert (read(second), labelled_texts(second)) == ([[7, 8]], [[8, 1]])
    assert second.arrays["position_ids"].tolist() == [0, 1, 0]


def test_documents_share_a_row() -> None:
    (row,) = rows(split([5, 6, 7], [8, 9]), 8)
    assert sorted(read(row)) == [[1, 5, 6, 7], [1, 8, 9]]
    assert sorted(labelled_texts(row)) == [[5, 6, 7, 1], [8, 9, 1]]
    assert sorted(row.arrays["document_ids"].tolist())[0] == 0
    assert set(row.arrays["document_ids"].tolist()) == {0, 1, 2}


def test_without_an_end_token_nothing_is_added() -> None:
    (row,) = rows(split([5, 6, 7]), 4, NO_END)
    assert (read(row), labelled_texts(row)) == ([[5, 6]], [[6, 7]])


def test_a_token_that_starts_texts_is_not_the_one_that_ends_them() -> None:
    words = vocabulary(roles={**ROLES, "bos": "<s>"}, sentinels=0, size=500)
    (row,) = rows(split([5, 6]), 4, words)
    assert (read(row), labelled_texts(row)) == ([[3, 5, 6]], [[5, 6, 1]])


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(2, 70),
    st.integers(0, 3),
    st.booleans(),
)
def test_an_epoch_tells_every_token_and_every_end_once(
    lengths: list[int], length: int, seed: int, ended: bool
) -> None:
    split = rows(counted(lengths), length, WORDS if ended else NO_END, seed)
    values = Counter(int(token) for row in split for token in row.values["labels"])
    tokens, starts = set(range(3, 3 + sum(lengths))), np.cumsum([3, *lengths])[:-1].tolist()
    if ended:
        assert values.pop(1) == len(lengths)
        assert set(values) == tokens
    else:
        assert set(values) == tokens - set(starts)
    assert set(values.values()) <= {1}
    for row in split:
        assert row.counts["causal-lm"] == np.count_nonzero(row.arrays["document_ids"])
        for read_ids, targets in zip(read(row), labelled_texts(row), strict=True):
            assert read_ids[1:] == targets[:-1]  # targets are shifted inputs


@settings(deadline=None)
@given(st.integers(65, 4000), st.integers(64, 512))
def test_a_long_document_leaves_no_place_empty_but_at_its_end(size: int, length: int) -> None:
    split = rows(counted([size]), length)
    assert [row for row in split[:-1] if not row.arrays["document_ids"].all()] == []
    assert len(split) == -(-(size + 1) // length)


def test_full_rows_of_one_text_are_given_without_mask_and_positions() -> None:
    task = objective(4)
    full, short = rows(split(range(5, 16)), 4), rows(split([5, 6]), 4)
    batch = task.collate(full)
    assert set(batch.tensors) == {"input_ids", "labels", "label_positions"}
    assert (batch.tokens, batch.counts) == (12, {"causal-lm": 12})
    assert {"document_ids", "position_ids"} < set(task.collate([*full, *short]).tensors)


def test_the_layout_is_a_function_of_the_seed() -> None:
    split = counted([9, 3, 20, 14, 1, 30])

    def drawn(seed: int) -> list[list[int]]:
        return [row.arrays["input_ids"].tolist() for row in rows(split, 16, seed=seed)]

    assert drawn(1) == drawn(1) != drawn(2)


# Losses


def references(model: Any, config: GptConfig) -> Any:
    return reference_model(GPT, config, "causal-lm", model.state_dict())


CONFIGS = {"gpt2": SMALL, "gpt": replace(SMALL, norm="post")}


@pytest.mark.by_default("(1, 2, 9)-gpt2", "(40,)-gpt")
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("documents", [(15,), (6, 7), (1, 2, 9), (40,)], ids=str)
def test_the_loss_equals_the_reference_of_each_text_alone(
    name: str, documents: tuple[int, ...]
) -> None:
    config = CONFIGS[name]
    model = random_model(GPT, config, "causal-lm").float()
    reference = references(model, config).float()
    task, examples = objective(16), rows(counted(documents), 16)
    batch = task.collate(examples)
    with torch.no_grad():
        ours = task.compute_loss(model, batch.tensors)
        theirs = 0.0
        for row in examples:
            for inputs, targets in zip(read(row), labelled_texts(row), strict=True):
                ids = torch.tensor([[*inputs, targets[-1]]])
                theirs += float(reference(input_ids=ids, labels=ids).loss) * len(targets)
    assert batch.counts["causal-lm"] == sum(documents) + len(documents)
    assert float(ours.sums["causal-lm"]) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("name", CONFIGS)
def test_texts_that_share_a_row_are_as_they_are_alone(name: str) -> None:
    model: Any = random_model(GPT, CONFIGS[name], "causal-lm")
    (row,) = rows(counted([6, 1, 12, 4]), 32)
    tensors = objective(32).collate([row]).tensors
    packed = model.encode(**model_inputs(tensors))[0]
    for number, text in enumerate(read(row), 1):
        alone = model(input_ids=torch.tensor([text]))["logits"][0]
        here = model.scores(packed[tensors["document_ids"][0] == number])
        assert (here - alone).abs().max() < 1e-12


def test_gradients_are_those_of_the_texts_alone() -> None:
    model: Any = random_model(GPT, SMALL, "causal-lm")
    task, (row,) = objective(32), rows(counted([6, 1, 12]), 32)

    def gradient(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        model.zero_grad()
        task.compute_loss(model, tensors).sums["causal-lm"].backward()  # type: ignore[no-untyped-call]
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    alone = sum(
        gradient(
            {
                "input_ids": torch.tensor([inputs]),
                "labels": torch.tensor(targets),
                "label_positions": torch.arange(len(targets)),
            }
        )
        for inputs, targets in zip(read(row), labelled_texts(row), strict=True)
    )
    together = gradient(task.collate([row]).tensors)
    assert (together - alone).abs().max() < 1e-6 * together.abs().max()


# Supported models


def test_a_family_that_reads_both_ways_cannot_learn_it() -> None:
    bert = get_family("bert")
    with pytest.raises(Exception, match="has no head 'causal-lm'"):
        objective_type(bert, bert.sizes()["tiny"], "causal-lm")


@pytest.mark.parametrize("size", list(GPT.sizes()))
def test_every_size_has_a_recipe(size: str) -> None:
    recipe = GPT.recipe(size)
    assert recipe.objective == "causal-lm"
    assert recipe.seq_len <= GPT.sizes()[size].max_positions


def test_the_recipes_are_the_papers() -> None:
    first, second = GPT.recipe("gpt"), GPT.recipe("xl")
    assert (first.seq_len, first.global_batch_tokens // first.seq_len) == (512, 64)
    assert (first.optimizer.learning_rate, first.lr_scheduler.warmup_steps) == (2.5e-4, 2000)
    assert (second.seq_len, second.global_batch_tokens // second.seq_len) == (1024, 512)
    assert second.optimizer.learning_rate == 2e-4
