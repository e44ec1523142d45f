"""Runs of words that occur again, next to a search of all pairs of positions."""

import random

import numpy as np
import pytest

from zoo.cleaning.substrings import hash_runs, remove_words, word_spans


def test_hashes_are_those_of_the_runs() -> None:
    generator = random.Random(0)
    words = [generator.choice("abcd") for _ in range(300)]
    hashes = hash_runs(words, 5)
    runs = [tuple(words[start : start + 5]) for start in range(296)]
    assert len(hashes) == 296
    hash_of_run: dict[tuple[str, ...], int] = {}
    for run, value in zip(runs, hashes.tolist(), strict=True):
        assert hash_of_run.setdefault(run, value) == value
    assert len(set(hash_of_run.values())) == len(hash_of_run) > 100


@pytest.mark.parametrize("count", [0, 1, 49])
def test_a_short_text_has_no_runs(count: int) -> None:
    assert len(hash_runs(["word"] * count)) == 0


@pytest.mark.parametrize(
    ("first_words", "expected"),
    [
        ([], "a b\nc  d e"),
        ([0], "c  d e"),
        ([1], "a d e"),
        ([3], "a b\nc"),
        ([1, 2], "a e"),
        ([0, 2, 3], ""),
    ],
)
def test_words_are_removed(first_words: list[int], expected: str) -> None:
    text = "a b\nc  d e"
    assert len(word_spans(text)) == 5
    assert remove_words(text, np.array(first_words, np.uint32), 2) == expected
