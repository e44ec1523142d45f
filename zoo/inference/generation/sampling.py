"""Sampling of the next token: temperature, top-k and top-p.

Holtzman, Buys, Du, Forbes and Choi 2020, "The Curious Case of Neural Text Degeneration",
arXiv:1904.09751, section 3.1 (top-p) and 5 (top-k, temperature).
"""

from collections.abc import Sequence

import torch
from blake3 import blake3
from torch import Tensor

from zoo.inference.generation.config import GenerationConfig


def probabilities(logits: Tensor, settings: GenerationConfig) -> Tensor:
    """Return the distribution that tokens are sampled from.

    Temperature is applied first, then top-k, then top-p. Top-k keeps all tokens that tie with the
    k-th.

    Args:
        logits: (batch, vocabulary).
        settings: temperature, top-k and top-p.

    Returns:
        (batch, vocabulary), float64, zero for excluded tokens.
    """
    scores = logits.double()
    # the maximum becomes zero, so that a low temperature cannot overflow
    scores = (scores - scores.amax(-1, keepdim=True)) / (settings.temperature or 1.0)
    if settings.top_k is not None and settings.top_k < scores.shape[-1]:
        least = scores.topk(settings.top_k).values[:, -1:]
        scores = scores.masked_fill(scores < least, float("-inf"))
    probs = scores.softmax(-1)
    if settings.top_p is not None and settings.top_p < 1:
        ordered, order = probs.sort(descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered  # total probability of more likely tokens
        ordered = ordered.masked_fill(before >= settings.top_p, 0.0)
        probs = torch.zeros_like(probs).scatter_(-1, order, ordered)
        probs /= probs.sum(-1, keepdim=True)
    return probs


class RowSampler:
    """Random numbers per row, independent of the other rows of the batch.

    Args:
        seed: see ``GenerationConfig``; ``None`` for a seed of the operating system.
        rows: index of each row among all inputs.
        rolls: maximum number of random numbers per row.
    """

    def __init__(self, seed: int | None, rows: Sequence[int], rolls: int) -> None:
        seed = torch.Generator().seed() if seed is None else seed
        self._rolls = torch.stack([_rolls(seed, place, rolls) for place in rows])

    def draw(self, probs: Tensor, rows: Sequence[int], step: int) -> Tensor:
        """Sample a token for each row.

        Args:
            probs: (rows, vocabulary), float64; see ``probabilities``.
            rows: indices of the rows in the batch.
            step: number of tokens sampled before.

        Returns:
            (rows,), int64.
        """
        sums = probs.cumsum(-1)
        roll = self._rolls[list(rows), step, None].to(probs.device)
        # the first token whose cumulative sum exceeds the number; never one of probability zero
        tokens = torch.searchsorted(sums, roll * sums[:, -1:], right=True)
        return torch.minimum(tokens, _last_possible(probs)).squeeze(-1)


def _rolls(seed: int, place: int, count: int) -> Tensor:
    key = int.from_bytes(blake3(f"{seed}\0{place}".encode()).digest(7))
    generator = torch.Generator().manual_seed(key)
    return torch.rand(count, dtype=torch.float64, generator=generator)


def _last_possible(probs: Tensor) -> Tensor:
    """Return the last token of non-zero probability; rounding in the sums may lead beyond it."""
    width = probs.shape[-1]
    return width - 1 - (probs.flip(-1) > 0).int().argmax(-1, keepdim=True)
