"""Sampling: the distribution, computed by hand, and the effect of the seed."""

import math
from collections import Counter

import pytest
import torch

from tests.inference.generation.conftest import MakePair
from zoo.inference.generation.config import GenerationConfig
from zoo.inference.generation.decoder import pad
from zoo.inference.generation.generate import generate
from zoo.inference.generation.sampling import RowSampler, probabilities
from zoo.inference.generation.scores import Scores

# probabilities 1/2, 1/4, 1/8, 1/16, 1/16, unsorted
LOGITS = torch.tensor([[0.25, 0.5, 0.0625, 0.125, 0.0625]]).log()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (GenerationConfig(temperature=1.0), [1 / 4, 1 / 2, 1 / 16, 1 / 8, 1 / 16]),
        # squared and divided by 1/4 + 1/16 + 1/64 + 2/256 = 86/256
        (GenerationConfig(temperature=0.5), [16 / 86, 64 / 86, 1 / 86, 4 / 86, 1 / 86]),
        (GenerationConfig(temperature=1e-310), [0, 1, 0, 0, 0]),
        (GenerationConfig(top_k=1), [0, 1, 0, 0, 0]),
        (GenerationConfig(top_k=3), [2 / 7, 4 / 7, 0, 1 / 7, 0]),
        (GenerationConfig(top_k=4), [1 / 4, 1 / 2, 1 / 16, 1 / 8, 1 / 16]),  # a tie
        (GenerationConfig(top_k=99), [1 / 4, 1 / 2, 1 / 16, 1 / 8, 1 / 16]),
        (GenerationConfig(top_p=0.4), [0, 1, 0, 0, 0]),
        (GenerationConfig(top_p=0.6), [1 / 3, 2 / 3, 0, 0, 0]),
        (GenerationConfig(top_p=0.8), [2 / 7, 4 / 7, 0, 1 / 7, 0]),
        (GenerationConfig(top_p=1.0), [1 / 4, 1 / 2, 1 / 16, 1 / 8, 1 / 16]),
        # after top-k the probabilities are 2/7, 4/7, 1/7; the two largest sum to 6/7
        (GenerationConfig(top_k=3, top_p=0.85), [1 / 3, 2 / 3, 0, 0, 0]),
        # at temperature 1/2 the largest probability is 64/86
        (GenerationConfig(temperature=0.5, top_p=0.74), [0, 1, 0, 0, 0]),
    ],
)
def test_the_distribution_is_the_one_worked_out_by_hand(
    settings: GenerationConfig, expected: list[float]
) -> None:
    inputs = {"input_ids": torch.tensor([[1]])}
    scores = Scores(inputs, settings, []).of(LOGITS.double(), [0], torch.empty(1, 0).long())
    actual = probabilities(scores)[0].tolist()
    assert actual == pytest.approx(expected, abs=1e-7)
    assert [value > 0 for value in actual] == [value > 0 for value in expected]


def test_draws_follow_the_distribution() -> None:
    chances = torch.tensor([[0.0, 0.5, 0.0, 0.3, 0.2, 0.0]], dtype=torch.float64)
    count = 8_000
    dice = RowSampler(7, [0], count)
    drawn = Counter(int(dice.draw(chances, [0], step)) for step in range(count))
    assert drawn.keys() == {1, 3, 4}
    for token, chance in ((1, 0.5), (3, 0.3), (4, 0.2)):
        deviation = math.sqrt(count * chance * (1 - chance))
        assert abs(drawn[token] - count * chance) < 4 * deviation


def test_texts_are_drawn_apart() -> None:
    chances = torch.full((2, 1000), 1e-3, dtype=torch.float64)
    dice = RowSampler(7, [0, 1], 50)
    first, second = zip(*(dice.draw(chances, [0, 1], step).tolist() for step in range(50)))  # noqa: B905
    assert first != second and len({*first, *second}) > 50
    assert RowSampler(7, [1], 50).draw(chances[:1], [0], 3).tolist() == [second[3]]


def test_the_seed_decides_the_text(pair: MakePair) -> None:
    model, _ = pair()
    inputs = pad([[5, 6], [7], [8, 9, 10]], side="left", pad_id=0, device="cpu")

    def texts(seed: int | None) -> list[list[int]]:
        return generate(
            model, inputs, GenerationConfig(max_new_tokens=30, seed=seed, temperature=1.5)
        )

    assert texts(1) == texts(1)
    pairs = zip(texts(1), texts(2), strict=True)
    assert [first for first, second in pairs if first == second] == []
    assert texts(None) != texts(None)


def test_one_choice_is_the_greedy_one(pair: MakePair) -> None:
    model, _ = pair()
    inputs = pad([[5, 6], [7]], side="left", pad_id=0, device="cpu")
    assert generate(model, inputs, GenerationConfig(top_k=1, seed=0)) == generate(
        model, inputs, GenerationConfig()
    )
