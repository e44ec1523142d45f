"""StructBERT's objectives: samples by plain loops, proportions, and losses in float64."""

from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families.parity import random_model
from tests.objectives.making import corpus, made, one_a_row, reference_batch, small
from tests.objectives.pieces import SIZE, WORDS, binomial, packed, rows
from zoo.conformance.hf_reference import reference_model
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.errors import UsageError
from zoo.objectives import objective_type
from zoo.objectives.base import Example
from zoo.objectives.examples.packing import PackedRow
from zoo.objectives.options import parse_options
from zoo.objectives.word_structure import (
    StructuralPretraining,
    StructureOptions,
    WordStructure,
    WordStructureOptions,
    select_trigrams,
)
from zoo.plugins import get_family

PAIR_NAME = StructuralPretraining.name


def word_structure(length: int = 40, **options: Any) -> WordStructure:
    return WordStructure(WORDS, small("bert"), length, WordStructureOptions(**options))


def structural(length: int = 40, **options: Any) -> StructuralPretraining:
    return StructuralPretraining(WORDS, small("bert"), length, StructureOptions(**options))


# Words


@settings(deadline=None)
@given(row=rows, seed=st.integers(0, 2**32), share=st.sampled_from([0.05, 0.3, 0.7]))
def test_shuffled_rows_are_those_of_a_loop(row: PackedRow, seed: int, share: float) -> None:
    example = word_structure(shuffle_prob=share).mask_row(row, generator(seed))
    masks = word_structure(shuffle_prob=0).mask_row(row, generator(seed))
    masked = masks.positions["label_positions"][1].tolist()
    assert example.positions["label_positions"][1].tolist() == masked

    count = max(1, round(int((row.document_ids > 0).sum()) * share / 3))
    texts = (row.document_ids * row.is_text).tolist()
    positions = example.positions["shuffled_positions"][1].reshape(-1, 3).tolist()
    assert len(positions) <= count
    used: set[int] = set(masked)
    expected = masks.arrays["input_ids"].tolist()
    ids = example.arrays["input_ids"].tolist()
    for trigram in positions:
        assert trigram == list(range(trigram[0], trigram[0] + 3))
        assert used.isdisjoint(trigram) and len({texts[place] for place in trigram}) == 1
        assert row.is_text[trigram].tolist() == [True] * 3
        used.update(trigram)
        originals = row.input_ids[trigram].tolist()
        assert sorted(ids[place] for place in trigram) == sorted(originals)
        for place in trigram:
            expected[place] = ids[place]
    assert ids == expected  # All other tokens are as without shuffling.
    if len(positions) < count:  # There is no room for another one.
        free = [text > 0 and place not in used for place, text in enumerate(texts)]
        for start in range(len(texts) - 2):
            one_text = len(set(texts[start : start + 3])) == 1
            assert not (all(free[start : start + 3]) and one_text)
    labels = row.input_ids[example.positions["shuffled_positions"][1]]
    assert example.values["shuffled_labels"].tolist() == labels.tolist()
    assert example.counts["word-structure"] == len(labels)


def test_five_percent_of_the_tokens_are_in_shuffled_trigrams() -> None:
    row = packed(range(5, 63), range(5, 63), range(5, 63), length=186)
    task = word_structure(186)
    orders: Counter[tuple[int, ...]] = Counter()
    starts: Counter[int] = Counter()
    for seed in range(1000):
        example = task.mask_row(row, generator(seed))
        places = example.positions["shuffled_positions"][1].reshape(-1, 3)
        assert len(places) == 3  # 0.05 * 180 tokens / 3
        for trigram in places.tolist():
            original = row.input_ids[trigram].tolist()
            shuffled = example.arrays["input_ids"][trigram].tolist()
            orders[tuple(original.index(token) for token in shuffled)] += 1
            starts[trigram[0] // 62] += 1
    assert set(orders) == set(permutations(range(3)))
    assert [count for count in orders.values() if not binomial(count, 3000, 1 / 6)] == []
    assert [count for count in starts.values() if not binomial(count, 3000, 1 / 3)] == []


def test_masks_leave_too_few_tokens() -> None:
    row = packed([5, 6, 7, 8, 9])
    none = select_trigrams(row, np.array([3]), 2, generator(0))
    assert none.shape == (0, 3)
    example = word_structure(mask_prob=0.9, shuffle_prob=0.1).mask_row(row, generator(0))
    assert example.counts == {"masked-lm": 5, "word-structure": 0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle_prob": 1.5}, "shuffle_prob is 1.5, which is not between 0 and 1"),
        ({"shuffle_prob": 0.9}, "mask_prob = 0.15 and shuffle_prob = 0.9 add up to more than 1"),
        ({"shuffle": 0.1}, "has no option 'shuffle'"),
    ],
)
@pytest.mark.parametrize("kind", [WordStructure, StructuralPretraining])
def test_bad_options(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_options(kind.options_type, options, kind.name)


# Sentences


def ordered_corpus(count: int = 400) -> Split:
    """Return documents whose sentences are their number, of two tokens, and the sentence's."""
    rng = generator(3)
    documents = []
    for number, sentences in enumerate(rng.integers(1, 7, size=count).tolist()):
        name = [5 + number % 29, 5 + number // 29]
        documents.append([[*name, 34 + sentence] for sentence in range(sentences)])
    return Split.from_documents(documents)


def original_segments(row: Example, number: int) -> tuple[list[int], list[int]]:
    """Return both segments of a pair of a row, before masking and shuffling."""
    ids = row.arrays["input_ids"].copy()
    ids[row.positions["label_positions"][1]] = row.values["labels"]
    ids[row.positions["shuffled_positions"][1]] = row.values["shuffled_labels"]
    of_pair = row.arrays["document_ids"] == number
    types = row.arrays["token_type_ids"][of_pair]
    first, second = ids[of_pair][types == 0], ids[of_pair][types == 1]
    return first[1:-1].tolist(), second[:-1].tolist()


@pytest.mark.parametrize("order", ["keyed", "arrays"])
def test_a_third_of_the_pairs_is_of_each_class(order: Any) -> None:
    split = ordered_corpus()
    split.order = order
    labels: Counter[int] = Counter()
    dataset = structural(60, dupe_factor=4).dataset(split, 0)
    for index in range(len(dataset)):
        row = dataset.example(index, generator(1, index))
        pair_labels = row.values["pair_labels"].tolist()
        assert row.counts["sentence-structure"] == len(pair_labels)
        for number, label in enumerate(pair_labels, 1):
            first, second = original_segments(row, number)
            same_document = first[:2] == second[:2]
            if label == 1:
                assert not same_document
            else:
                assert same_document
                ends, begins = (first, second) if label == 0 else (second, first)
                assert begins[2] == ends[-1] + 1
            labels[label] += 1
    total = labels.total()
    assert total > 1000 and set(labels) == {0, 1, 2}
    assert [count for count in labels.values() if not binomial(count, total, 1 / 3)] == []


def test_rows_are_functions_of_the_seed() -> None:
    datasets = [structural().dataset(ordered_corpus(), seed) for seed in (0, 0, 1)]
    digests = []
    for dataset in datasets:
        for step in (0, 1):
            examples = [dataset.example(index, generator(step, index)) for index in range(6)]
            ids = [example.arrays["input_ids"].tolist() for example in examples]
            pairs = [example.values["pair_labels"].tolist() for example in examples]
            digests.append((ids, pairs))
    assert digests[:2] == digests[2:4]
    assert digests[0] != digests[1] and digests[0] != digests[4]


def test_families_without_three_classes() -> None:
    for name in ("albert", "bigbird", "roberta"):
        family = get_family(name)
        config = family.sizes()["tiny"]
        with pytest.raises(UsageError, match=rf"cannot learn {PAIR_NAME.replace('+', '.')}: none"):
            objective_type(family, config, PAIR_NAME)
        assert objective_type(family, config, WordStructure.name) is WordStructure


# Losses


def test_the_losses_equal_those_of_the_reference_in_float64() -> None:
    """Cross-entropies of plain torch, on logits of the reference library's BERT."""
    task = structural()
    examples = one_a_row(made(task, ordered_corpus()))
    rng = generator(9)
    long = Split.from_documents(
        [[rng.integers(5, SIZE, size=9).tolist() for _ in range(4)] for _ in range(60)]
    )
    examples += one_a_row(made(task, long))
    family = get_family("bert")
    model: Any = random_model(family, task.config, task.head).double()
    state = model.state_dict()
    pair_head = {name: state[f"head.next_sentence.{name}"] for name in ("weight", "bias")}
    two_classes = {f"head.next_sentence.{name}": value[:2] for name, value in pair_head.items()}
    reference: Any = reference_model(family, task.config, "pretraining", state | two_classes)
    reference.cls.seq_relationship = torch.nn.Linear(pair_head["weight"].shape[1], 3)
    reference.cls.seq_relationship.load_state_dict(pair_head)
    reference = reference.double().eval()
    batch = task.collate(examples)
    loss = task.compute_loss(model, batch.tensors)
    inputs = reference_batch(examples)
    del inputs["labels"]
    with torch.no_grad():
        output = reference(**inputs)
    tokens = output.prediction_logits.flatten(0, 1)
    tensors = batch.tensors
    parts = {
        "masked-lm": (tokens[tensors["label_positions"]], tensors["labels"]),
        "word-structure": (tokens[tensors["shuffled_positions"]], tensors["shuffled_labels"]),
        "sentence-structure": (output.seq_relationship_logits, tensors["pair_labels"]),
    }
    assert dict(task.loss_weights) == dict.fromkeys(parts, 1.0)
    accuracies = {"masked-lm": "accuracy", "word-structure": "word_structure_accuracy"}
    for term, (logits, labels) in parts.items():
        assert batch.counts[term] == len(labels) > 10
        expected = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        assert float(loss.sums[term].detach()) == pytest.approx(float(expected), rel=1e-12), term
        correct, count = loss.metrics[accuracies.get(term, "pair_accuracy")]
        assert int(correct) == int((logits.argmax(-1) == labels).sum())
        assert int(count) == len(labels)


def test_without_shuffling_there_is_no_loss_of_it() -> None:
    task = structural(shuffle_prob=0)
    assert dict(task.loss_weights) == {"masked-lm": 1.0, "sentence-structure": 1.0}
    batch = task.collate(made(task, ordered_corpus())[:4])
    model = random_model(get_family("bert"), task.config, task.head)
    assert set(task.compute_loss(model, batch.tensors).sums) == set(task.loss_weights)
    words = word_structure(shuffle_prob=0)
    assert dict(words.loss_weights) == {"masked-lm": 1.0}
    assert set(words.collate(made(words, corpus())[:2]).counts) == {"masked-lm"}
