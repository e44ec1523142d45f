"""Tests of the cost of ordering many labels, by the number of comparisons."""

from types import SimpleNamespace
from typing import ClassVar, cast

import pytest

from zoo.data.readers.labelled import Sample
from zoo.errors import UsageError
from zoo.finetuning.labels import label_order, order_labels
from zoo.inference.results import EvaluatedModel
from zoo.inference.text_results import label_number_of

COUNT = 1000


class Counted(str):
    """Text that counts how often it is compared with other text."""

    __slots__ = ()
    comparisons: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.fixture(autouse=True)
def none_counted() -> None:
    Counted.comparisons = 0


def names() -> list[str]:
    """Return new texts, so that none is found by its identity."""
    return [Counted(f"label {number:04}") for number in range(COUNT)]


@pytest.mark.parametrize("requested", [False, True])
def test_labels_are_ordered_in_linear_time(requested: bool) -> None:
    expected = tuple(f"label {number:04}" for number in range(COUNT))
    if requested:
        expected = expected[::-1]
    ordered = order_labels(set(names()), names()[::-1] if requested else None)
    assert Counted.comparisons < 10 * COUNT
    assert ordered == expected


def test_repeated_label_is_named_among_many() -> None:
    requested = [*names(), "label 0500", "label 0400"]
    with pytest.raises(UsageError, match=r"data\.labels has 'label 0400' twice"):
        order_labels(set(names()), requested)


def test_labels_are_matched_in_linear_time() -> None:
    order = label_order(names(), names()[::-1])
    assert Counted.comparisons < 10 * COUNT
    assert order == tuple(range(COUNT))[::-1]


def test_labels_of_samples_are_found_in_linear_time() -> None:
    config = SimpleNamespace(labels=tuple(names()))
    model = EvaluatedModel(config, config.labels)
    sample = cast("Sample", None)  # for messages only
    found = [label_number_of(model, name, sample) for name in names()]
    assert Counted.comparisons < 10 * COUNT
    assert found == list(range(COUNT))
