"""The sampler, and the sampled softmax."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from zoo.objectives.losses.sampled_softmax import (
    SampledWords,
    log_uniform_sample,
    probability,
    sampled_softmax_loss,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear(table: torch.Tensor, bias: torch.Tensor) -> torch.nn.Linear:
    layer = torch.nn.Linear(table.shape[1], table.shape[0], dtype=table.dtype)
    layer.load_state_dict({"weight": table, "bias": bias})
    return layer


def test_probabilities_add_up() -> None:
    probabilities = probability(torch.arange(1000), 1000)
    assert math.isclose(probabilities.sum().item(), 1.0, rel_tol=1e-12)
    assert math.isclose(probabilities[0].item(), math.log(2) / math.log(1001), rel_tol=1e-12)
    assert (probabilities.diff() < 0).all()


@pytest.mark.long
def test_single_draws_follow_the_probabilities() -> None:
    generator, many = seeded(), 8_000
    counts = np.zeros(5)
    for _ in range(many):
        counts[int(log_uniform_sample(5, 1, generator).words[0])] += 1
    expected = probability(torch.arange(5), 5).numpy()
    deviation = np.sqrt(expected * (1 - expected) / many)
    assert (np.abs(counts / many - expected) <= 5 * deviation).all()


@pytest.mark.parametrize(("vocabulary", "samples"), [(10, 9), (1000, 300), (793_471, 64)])
def test_a_sample_holds_no_word_twice(vocabulary: int, samples: int) -> None:
    sample = log_uniform_sample(vocabulary, samples, seeded())
    assert len(set(sample.words.tolist())) == samples <= sample.num_tries
    assert sample.words.min() >= 0 and sample.words.max() < vocabulary
    assert torch.equal(sample.words, log_uniform_sample(vocabulary, samples, seeded()).words)


@pytest.mark.parametrize("samples", [0, 10, 11])
def test_a_sample_is_smaller_than_the_vocabulary(samples: int) -> None:
    with pytest.raises(ValueError, match="vocabulary of 10"):
        log_uniform_sample(10, samples)


def test_the_sampled_softmax_is_the_formula() -> None:
    generator = seeded(3)
    hidden, table = (torch.randn(n, 6, generator=generator).double() for n in (7, 40))
    bias = torch.randn(40, generator=generator).double()
    softmax = linear(table, bias)
    targets = torch.tensor([0, 5, 39, 2, 2, 17, 8])
    sample = SampledWords(torch.tensor([2, 0, 30, 17, 6]), num_tries=9)
    loss = sampled_softmax_loss(softmax, hidden, targets, sample)

    def score(place: int, word: int) -> float:
        p = math.log((word + 2) / (word + 1)) / math.log(41)
        count = 1 - (1 - p) ** 9
        return float(hidden[place] @ table[word] + bias[word]) - math.log(count)

    for place, target in enumerate(targets.tolist()):
        others = [score(place, word) for word in sample.words.tolist() if word != target]
        right = score(place, target)
        expected = -math.log(math.exp(right) / (math.exp(right) + sum(map(math.exp, others))))
        assert math.isclose(loss[place].item(), expected, rel_tol=1e-9)


def test_with_a_long_draw_it_is_the_whole_softmax() -> None:
    generator = seeded(4)
    hidden, table = (torch.randn(n, 6, generator=generator).double() for n in (7, 12))
    bias, targets = torch.zeros(12).double(), torch.arange(7)
    everything = SampledWords(torch.arange(12), num_tries=100_000)  # all expected counts are one
    loss = sampled_softmax_loss(linear(table, bias), hidden, targets, everything)
    whole = F.cross_entropy(hidden @ table.T, targets, reduction="none")
    assert (loss - whole).abs().max() <= 1e-9
