"""Drawing the next token: temperature, the likeliest k, the nucleus.

Holtzman, Buys, Du, Forbes and Choi 2020, "The Curious Case of Neural Text Degeneration",
arXiv:1904.09751, section 3.1 (top-p) and 5 (top-k, temperature).
"""

from collections.abc import Sequence

import torch
from blake3 import blake3
from torch import Tensor

from zoo.inference.generation.config import GenerationConfig


def probabilities(logits: Tensor, settings: GenerationConfig) -> Tensor:
    """Return the distribution that tokens are drawn from.

    Temperature is applied first, then top-k, then top-p to what is left. Of tokens that are
    equally likely at the border, top-k keeps all.

    Args:
        logits: (batch, vocabulary).
        settings: the three.

    Returns:
        (batch, vocabulary), float64, zero for tokens that cannot be drawn.
    """
    scores = logits.double()
    # the likeliest becomes zero, so that no temperature makes an infinity of it
    scores = (scores - scores.amax(-1, keepdim=True)) / (settings.temperature or 1.0)
    if settings.top_k is not None and settings.top_k < scores.shape[-1]:
        least = scores.topk(settings.top_k).values[:, -1:]
        scores = scores.masked_fill(scores < least, float("-inf"))
    found = scores.softmax(-1)
    if settings.top_p is not None and settings.top_p < 1:
        ordered, order = found.sort(descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered  # what the likelier tokens sum up to
        ordered = ordered.masked_fill(before >= settings.top_p, 0.0)
        found = torch.zeros_like(found).scatter_(-1, order, ordered)
        found /= found.sum(-1, keepdim=True)
    return found


class RowSampler:
    """Random numbers for each text of a batch, whatever else is in the batch.

    Args:
        seed: see ``Settings``; ``None`` for numbers that no run repeats.
        rows: of each row, its place among all inputs.
        rolls: how many numbers each row needs at most.
    """

    def __init__(self, seed: int | None, rows: Sequence[int], rolls: int) -> None:
        seed = torch.Generator().seed() if seed is None else seed
        self._rolls = torch.stack([_rolls(seed, place, rolls) for place in rows])

    def draw(self, chances: Tensor, rows: Sequence[int], step: int) -> Tensor:
        """Draw a token for each row.

        Args:
            chances: (rows, vocabulary), float64; see ``probabilities``.
            rows: which of the batch's texts they are of.
            step: how many tokens were drawn before.

        Returns:
            (rows,), int64.
        """
        sums = chances.cumsum(-1)
        roll = self._rolls[list(rows), step, None].to(chances.device)
        # the first token whose sum is over the number: one with a chance of zero never is
        drawn = torch.searchsorted(sums, roll * sums[:, -1:], right=True)
        return torch.minimum(drawn, _last_possible(chances)).squeeze(-1)


def _rolls(seed: int, place: int, count: int) -> Tensor:
    key = int.from_bytes(blake3(f"{seed}\0{place}".encode()).digest(7))
    generator = torch.Generator().manual_seed(key)
    return torch.rand(count, dtype=torch.float64, generator=generator)


def _last_possible(chances: Tensor) -> Tensor:
    """Return the last token of each row that can be drawn, against rounding in the sums."""
    width = chances.shape[-1]
    return width - 1 - (chances.flip(-1) > 0).int().argmax(-1, keepdim=True)
