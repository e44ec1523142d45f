"""The prefix objective: the paper's example, uniform split positions, and full rows."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.objectives.words import vocabulary
from zoo.data.rng import generator
from zoo.objectives.examples.vocabulary import Ids
from zoo.objectives.prefix import PrefixLm, PrefixRowBudget, draw_split_points
from zoo_t5.config import T5Config

WORDS = vocabulary([f"w{number}" for number in range(3000)])


def objective(length: int) -> PrefixLm:
    return PrefixLm(WORDS, T5Config(vocab_size=WORDS.vocab_size), length)


def filled(length: int, sizes: list[int], special_tokens: int = 1) -> list[int]:
    """Return the lengths of the texts in a row that is filled with texts of given lengths."""
    row, lengths = PrefixRowBudget(length, special_tokens), []
    for size in sizes:
        if (taken := min(size, row.capacity())) > 0:
            row.add(taken)
            lengths.append(taken)
    return lengths


@settings(deadline=None)
@given(
    st.integers(8, 200),
    st.lists(st.integers(1, 250), min_size=1, max_size=40),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_every_draw_fits_into_both_rows(
    length: int, requested: list[int], special_tokens: int, seed: int
) -> None:
    sizes = np.array(filled(length, requested, special_tokens))
    cuts = draw_split_points(sizes, length, special_tokens, generator(seed, "row"))
    assert (cuts >= np.minimum(1, sizes - 1)).all() and (cuts < sizes).all()
    assert (cuts + special_tokens).sum() <= length
    assert (sizes - cuts + special_tokens).sum() <= length


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 2**32))
def test_a_prefix_and_the_rest_are_the_text(requested: list[int], seed: int) -> None:
    texts = [np.arange(3, 3 + size) for size in filled(128, requested)]
    task = objective(128).source_target_pairs(texts, generator(seed, "row"))
    for text, (source, target) in zip(texts, task, strict=True):
        assert [*source, *target] == text.tolist()
        assert len(target) >= 1
        assert len(source) >= 1 or len(text) == 1


def drawn(sizes: list[int], length: int, count: int) -> Ids:
    """Return many draws of split points, of shape (count, texts)."""
    return np.array(
        [draw_split_points(np.array(sizes), length, 1, generator(n, "row")) for n in range(count)]
    )


@pytest.mark.by_default("sizes0")
@pytest.mark.parametrize("sizes", [[5], [5, 5], [60, 5, 7, 50]])
def test_split_points_are_uniform_in_both_kinds(sizes: list[int]) -> None:
    cuts = drawn(sizes, 64, 4000)
    five = Counter(cuts[:, sizes.index(5)].tolist())
    assert set(five) == {1, 2, 3, 4}
    # standard deviation 27.4
    assert [key for key, count in five.items() if not abs(count - 1000) < 5 * 27.4] == []


def test_a_row_that_is_full_has_texts_cut_anywhere() -> None:
    sizes = filled(24, [18, 30, 3, 9, 2, 5])
    row = drawn(sizes, 24, 4000)
    assert (row + 1).sum(axis=1).max() == 24  # a full row
    for size, cuts in zip(sizes, row.T, strict=True):
        seen = np.bincount(cuts, minlength=size)[1:] / 4000
        # rounding moves some split points by one position
        assert np.abs(np.cumsum(seen) - np.arange(1, size) / (size - 1)).max() < 1 / (size - 1) / 2


def test_source_fraction_of_one_kind_is_target_fraction_of_the_other() -> None:
    cuts = drawn([30, 30], 40, 50)
    assert (cuts.sum(axis=1) == 30).all()


def test_the_example_of_the_paper() -> None:
    text = np.array([9, 8, 7, 6, 5, 4, 3, 10, 11, 12, 13])
    seen = {
        tuple(source.tolist()): target.tolist()
        for n in range(300)
        for source, target in objective(64).source_target_pairs([text], generator(n, "row"))
    }
    # Thank you for inviting -> me to your party last week .
    assert seen[9, 8, 7, 6] == [5, 4, 3, 10, 11, 12, 13]
    assert set(seen) == {tuple(text[:n].tolist()) for n in range(1, 11)}


def test_prefixes_follow_from_the_generator() -> None:
    sizes = [30, 20, 9]
    first, again, different = (drawn(sizes, 64, n) for n in (3, 3, 4))
    assert (first == again).all() and len({tuple(row) for row in different.tolist()}) > 1
