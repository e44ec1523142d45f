"""Noise spans: number of tokens, number of spans, and uniform distribution over all partitions."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.objectives.words import spans
from zoo.data.rng import generator
from zoo.objectives.examples.span_noise import (
    num_noise_spans,
    num_noise_tokens,
    random_spans,
    single_tokens,
)


@pytest.mark.parametrize(
    ("tokens", "noise", "spans"), [(1, 0, 0), (2, 1, 1), (3, 1, 1), (7, 1, 1), (10, 2, 1)]
)
def test_short_texts_have_noise_where_they_can(tokens: int, noise: int, spans: int) -> None:
    assert (num_noise_tokens(tokens, 0.15), num_noise_spans(tokens, 0.15, 3)) == (noise, spans)


def test_halves_are_rounded_to_even_numbers() -> None:
    assert [num_noise_tokens(tokens, 0.25) for tokens in (6, 10, 14, 18)] == [2, 2, 4, 4]


@pytest.mark.long
def test_all_divisions_into_spans_are_equally_likely() -> None:
    masks = Counter(
        tuple(random_spans(8, 0.5, 2.0, generator(number, "mask")).tolist())
        for number in range(9000)
    )
    assert len(masks) == 9  # 3 compositions of 4 into 2 spans, squared
    # standard deviation 29.8
    assert [key for key, count in masks.items() if not abs(count - 1000) < 5 * 29.9] == []


@settings(deadline=None)
@given(
    st.integers(1, 2000),
    st.floats(0.01, 0.95),
    st.floats(1, 12),
    st.integers(0, 2**32),
)
def test_drawn_spans_are_as_many_as_the_algebra_says(
    tokens: int, rate: float, mean: float, seed: int
) -> None:
    noise = random_spans(tokens, rate, mean, generator(seed, "mask"))
    assert noise.shape == (tokens,)
    assert np.count_nonzero(noise) == num_noise_tokens(tokens, rate)
    assert spans(noise) == num_noise_spans(tokens, rate, mean)
    assert not noise[0]
    assert noise[-1] or tokens == 1
    if tokens > 2:
        assert abs(np.count_nonzero(noise) - rate * tokens) <= 1


def test_single_tokens_are_each_as_likely() -> None:
    counts = sum(single_tokens(40, 0.15, generator(n, "mask")).astype(int) for n in range(4000))
    assert np.abs(np.asarray(counts) - 600).max() < 5 * 22.6  # standard deviation 22.6
