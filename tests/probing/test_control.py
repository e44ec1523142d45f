"""Control tasks: one label for each type, drawn from the distribution of the labels."""

import numpy as np
import pytest

from zoo.probing.control import ControlTask

LABELS = np.repeat(np.arange(4), [10, 0, 60, 30])


def test_a_type_has_one_label_wherever_it_occurs() -> None:
    words = ["the", "cat", "and", "the", "dog", "and", "the", "bird"]
    control = ControlTask(LABELS, 4, seed=3)
    labels = control.labels(words)
    for word, label in zip(words, labels.tolist(), strict=True):
        assert label == control.label(word)
        assert ControlTask(LABELS, 4, seed=3).label(word) == label


def test_labels_of_types_have_the_distribution_of_the_task() -> None:
    """A share of 4,000 independent draws is within four standard deviations of its expectation."""
    types = [f"word{number}" for number in range(4000)]
    for seed in range(2):
        labels = ControlTask(LABELS, 4, seed).labels(types)
        shares = np.bincount(labels, minlength=4) / len(types)
        for share, expected in zip(shares, (0.1, 0, 0.6, 0.3), strict=True):
            assert share == pytest.approx(expected, abs=4 * (0.25 / len(types)) ** 0.5)
        assert shares[1] == 0
    first, second = (ControlTask(LABELS, 4, seed).labels(types) for seed in range(2))
    agreement = (first == second).mean()
    assert agreement == pytest.approx(0.01 + 0.36 + 0.09, abs=0.04)
