"""Metrics of log-likelihoods of tokens."""

import math

LARGEST = 700.0  # nats; the exponential of 710 overflows


def perplexity(loss: float) -> float:
    """Return the exponential of the mean loss per token in nats; infinite from ``LARGEST``."""
    return math.exp(loss) if loss < LARGEST else math.inf


def finite_perplexity(loss: float) -> float:
    """Return the perplexity where infinity has no place, such as in a ratio; at most e^700."""
    return math.exp(min(loss, LARGEST))


def likelihood_metrics(
    nats: float, correct: float, tokens: float, size: int | None = None
) -> dict[str, float]:
    """Return loss, perplexity and accuracy per token, and bits per byte if there is a size."""
    loss = nats / tokens
    metrics = {"loss": loss, "perplexity": perplexity(loss)}
    if size is not None:
        metrics["bits_per_byte"] = nats / math.log(2) / size
    metrics["accuracy"] = correct / tokens
    return metrics
