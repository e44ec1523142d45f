"""Online code lengths equal the formula of Voita and Titov 2020, computed by hand."""

from itertools import pairwise

import numpy as np
import pytest

from tests.probing.making import double, random_problem
from zoo.probing.classifier import ProbeVectors, train_probe
from zoo.probing.online_code import online_code, split_portions
from zoo.probing.settings import ProbeRecipe


def test_portions_are_whole_texts_in_random_order() -> None:
    train = np.arange(10, 2010)
    text_numbers = np.repeat(np.arange(1005), 2)
    portions = split_portions(train, text_numbers, seed=1)
    # 0.1, 0.2, ... % of 1,000 texts of two examples, without the portions before.
    ends = np.array([1, 2, 4, 8, 16, 32, 62, 125, 250, 500, 1000])
    assert [len(portion) for portion in portions] == (2 * np.diff(ends, prepend=0)).tolist()
    assert sorted(np.concatenate(portions)) == train.tolist()
    for portion in portions:
        _, counts = np.unique(text_numbers[portion], return_counts=True)
        assert set(counts) == {2}
    again = split_portions(train, text_numbers, seed=1)
    other = split_portions(train, text_numbers, seed=2)
    np.testing.assert_array_equal(np.concatenate(again), np.concatenate(portions))
    assert not np.array_equal(portions[-1], other[-1])
    # Of few texts, the first portions have no text of their own.
    few = split_portions(np.arange(8), np.arange(8), seed=0)
    assert [len(portion) for portion in few] == [1, 1, 2, 4]


def test_code_lengths_are_those_of_a_loop_by_hand() -> None:
    """Probes equal logistic regression (test_classifier.py); here are portions and formula."""
    arrays, labels = random_problem(examples=200, width=4)
    rows = np.arange(200)[:, None]
    train, validation = np.arange(160), np.arange(160, 200)
    vectors = ProbeVectors(arrays, rows, train)
    recipe = ProbeRecipe(epochs=12, learning_rate=0.02)
    code = online_code(
        vectors,
        labels,
        train=train,
        text_numbers=np.arange(200),
        validation=validation,
        classes=3,
        recipe=recipe,
        seed=4,
    )
    order = np.random.default_rng(4).permutation(160)
    mean = arrays[0][train].mean(0, dtype=np.float64)
    inputs = (arrays[0] - mean) / arrays[0][train].std(0, dtype=np.float64)
    ends = [1, 3, 5, 10, 20, 40, 80, 160]
    assert code.ends == ends
    bits = [np.log2(3)]
    for start, end in pairwise(ends):
        portions = [np.sort(order[a:b]) for a, b in pairwise([0, *ends]) if b <= start]
        probe = train_probe(
            vectors,
            labels,
            train=np.concatenate(portions),
            validation=validation,
            classes=3,
            recipe=recipe,
            seed=4,
        )
        weight, bias = map(double, probe.classifier.parameters())
        portion = order[start:end]
        scores = np.exp(inputs[portion] @ weight.T + bias)
        probabilities = scores / scores.sum(1, keepdims=True)
        bits.append(-np.log2(probabilities[np.arange(len(portion)), labels[portion]]).sum())
    np.testing.assert_allclose(code.portion_bits, bits, rtol=1e-5)
    assert code.bits == pytest.approx(sum(bits))
    assert code.bits < code.uniform_bits
    assert code.uniform_bits == pytest.approx(160 * np.log2(3))
    assert code.compression == pytest.approx(code.uniform_bits / code.bits)
