"""Samples of tokens against their probabilities."""

import numpy as np
import pytest
import torch

from zoo.data.rng import generator
from zoo.objectives.losses.sampling import sample_from_logits


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_samples_are_as_frequent_as_they_are_probable(temperature: float) -> None:
    scores = torch.randn(1, 40, generator=torch.Generator().manual_seed(0)) * 2
    count = 200_000
    uniforms = torch.from_numpy(generator(0, "u").random(count, dtype=np.float32))
    counts = np.bincount(
        sample_from_logits(scores.expand(count, -1), uniforms, temperature).numpy(), minlength=40
    )
    expected = (scores.double() / temperature).softmax(-1)[0].numpy() * count
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 73  # 39 degrees of freedom: p = 0.001 at 72.1


def test_samples_at_the_edges() -> None:
    lowest = float("-inf")
    scores = torch.tensor([[lowest, 1.0, lowest, 1.0, lowest]]).expand(4, -1)
    almost_one = float(np.nextafter(np.float32(1), np.float32(0)))
    uniforms = torch.tensor([0.0, 0.4999, 0.5, almost_one])
    assert sample_from_logits(scores, uniforms).tolist() == [
        1,
        1,
        3,
        3,
    ]  # never a token of probability zero


def test_the_last_token_is_taken_where_rounding_leaves_none() -> None:
    scores = torch.randn(500, 30_000, generator=torch.Generator().manual_seed(0))
    scores[:, -7:] = float("-inf")
    almost_one = torch.full((500,), float(np.nextafter(np.float32(1), np.float32(0))))
    assert sample_from_logits(scores, almost_one).max() < 30_000 - 7
