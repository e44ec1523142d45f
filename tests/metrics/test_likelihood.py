"""Metrics of log-likelihoods by hand."""

import math

import pytest

from zoo.metrics.likelihood import finite_perplexity, likelihood_metrics, perplexity


def test_a_uniform_guess_of_bytes() -> None:
    """Each of 4 tokens has the probability 1/16, and stands for 2 bytes: 2 bits per byte."""
    nats = 4 * math.log(16)
    assert likelihood_metrics(nats, 1, 4, 8) == pytest.approx(
        {"loss": math.log(16), "perplexity": 16, "bits_per_byte": 2, "accuracy": 0.25}
    )
    assert list(likelihood_metrics(nats, 1, 4)) == ["loss", "perplexity", "accuracy"]


def test_a_loss_without_bound_has_no_finite_perplexity() -> None:
    assert perplexity(1e4) == math.inf
    assert perplexity(2.5) == finite_perplexity(2.5) == math.exp(2.5)
    assert math.isfinite(finite_perplexity(1e4))
