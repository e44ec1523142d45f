"""Labels of examples: their distribution, and that they only depend on seed and examples."""

import itertools
from collections import Counter

import pytest

from zoo.errors import UsageError
from zoo.tasks.prompt.shot_labels import ShotLabels, read_shot_labels
from zoo.tasks.prompt.shots import Shot

WORDS = {"good": "great", "bad": "awful", "mixed": "fine"}
SHOTS = [
    Shot(f"text {number}", None, label, f"line {number}")
    for number, label in enumerate(["good", "good", "bad", "good", "mixed", "bad"])
]


def labels_of(labels: ShotLabels, seed: int) -> list[str]:
    shots = labels.relabel(SHOTS, WORDS, seed)
    assert [shot.text for shot in shots] == [shot.text for shot in SHOTS]
    return [shot.label for shot in shots]


def test_random_labels_are_uniform_at_each_place() -> None:
    draws = [labels_of(ShotLabels("random"), seed) for seed in range(3000)]
    for place in range(len(SHOTS)):
        counts = Counter(draw[place] for draw in draws)
        # Five standard errors of a share of a third.
        for label in WORDS:
            assert abs(counts[label] / 3000 - 1 / 3) < 0.043
    # Neighbours are independent.
    pairs = Counter((draw[0], draw[1]) for draw in draws)
    for pair in itertools.product(WORDS, WORDS):
        assert abs(pairs[pair] / 3000 - 1 / 9) < 0.03


def test_permuted_labels_keep_their_numbers_and_lose_their_places() -> None:
    draws = [labels_of(ShotLabels("permuted"), seed) for seed in range(2000)]
    gold = [shot.label for shot in SHOTS]
    for draw in draws:
        assert Counter(draw) == Counter(gold)
    for place in range(len(SHOTS)):
        good = sum(draw[place] == "good" for draw in draws)
        assert abs(good / 2000 - 1 / 2) < 0.056, "three of six labels are good"


@pytest.mark.parametrize(("share", "wrong"), [(0.17, 1), (0.5, 3), (1.0, 6)])
def test_a_share_of_the_labels_is_wrong(share: float, wrong: int) -> None:
    gold = [shot.label for shot in SHOTS]
    places = Counter[int]()
    replacements = Counter[str]()
    for seed in range(1000):
        drawn = labels_of(ShotLabels("wrong", share), seed)
        changed = [place for place, label in enumerate(gold) if drawn[place] != label]
        assert len(changed) == wrong
        places.update(changed)
        replacements.update(drawn[place] for place in changed if gold[place] == "good")
    assert set(places) == set(range(6)), "each example may be wrong"
    assert set(replacements) == {"bad", "mixed"}
    assert abs(replacements["bad"] / replacements.total() - 1 / 2) < 0.12


def test_labels_are_functions_of_the_seed() -> None:
    for labels in (ShotLabels("random"), ShotLabels("permuted"), ShotLabels("wrong", 0.5)):
        assert labels_of(labels, 3) == labels_of(labels, 3)
        assert len({tuple(labels_of(labels, seed)) for seed in range(20)}) > 5
        # The order of the words says nothing.
        reversed_words = dict(reversed(WORDS.items()))
        assert labels.relabel(SHOTS, reversed_words, 3) == labels.relabel(SHOTS, WORDS, 3)
    assert labels_of(ShotLabels(), 3) == [shot.label for shot in SHOTS]
    assert ShotLabels("none").relabel(SHOTS, WORDS, 3) == []


@pytest.mark.parametrize("source", ["gold", "random", "permuted", "none"])
def test_examples_with_labels_outside_of_the_task_are_refused(source: str) -> None:
    with pytest.raises(UsageError, match=r"line 4 has the label 'mixed', which has no word"):
        ShotLabels(source).relabel(SHOTS, {"good": "great", "bad": "awful"}, 0)


def test_names() -> None:
    labels = read_shot_labels(["none", "random"], [0.5, 1], 4)
    assert [label.name for label in labels] == ["none", "random", "0.5 wrong", "1 wrong"]
    assert [label.name for label in read_shot_labels([], [], None)] == ["gold"]


@pytest.mark.parametrize(
    ("sources", "shares", "shots", "message"),
    [
        (["random"], [], None, "are for examples; give --shots N --shots-from FILE"),
        (["true"], [], 4, "no labels of examples are called 'true'"),
        (["gold", "gold"], [], 4, "'gold' are given twice"),
        ([], [0.5, 0.5], 4, "'0.5 wrong' are given twice"),
        ([], [0], 4, "--wrong-labels is a share of the examples, and 0 is none"),
        ([], [1.5], 4, "and 1.5 is none"),
        ([], [float("nan")], 4, "and nan is none"),
        ([], [0.1], 4, "--wrong-labels 0.1 of --shots 4 changes no label"),
    ],
)
def test_wrong_values_are_refused(
    sources: list[str], shares: list[float], shots: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        read_shot_labels(sources, shares, shots)
