"""Draws of the next token, from random numbers that only depend on seed and row."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from blake3 import blake3
from torch import Tensor

from zoo.errors import UsageError

RowId: TypeAlias = int | str  # index of a prompt among all inputs, or of one of its sequences


def probabilities(scores: Tensor) -> Tensor:
    """Return the distribution to draw from, (rows, vocabulary), of scores after all rules."""
    if (scores == float("-inf")).all(-1).any():
        raise UsageError(
            "the settings of generation exclude every token", "suppress or forbid fewer tokens"
        )
    return scores.softmax(-1)


class RowSampler:
    """Random numbers per row, independent of the other rows of the batch."""

    def __init__(self, seed: int | None, rows: Sequence[RowId], rolls: int) -> None:
        seed = torch.Generator().seed() if seed is None else seed
        self._rolls = torch.stack([_rolls(seed, place, rolls) for place in rows])

    def draw(self, probs: Tensor, rows: Sequence[int], step: int) -> Tensor:
        """Sample a token for each row of ``probabilities``: (rows,), int64."""
        sums = probs.cumsum(-1)
        roll = self._rolls[list(rows), step, None].to(probs.device)
        # the first token whose cumulative sum exceeds the number; never one of probability zero
        tokens = torch.searchsorted(sums, roll * sums[:, -1:], right=True)
        # rounding in the sums may lead beyond the last token of non-zero probability
        width = probs.shape[-1]
        return torch.minimum(
            tokens, width - 1 - (probs.flip(-1) > 0).int().argmax(-1, keepdim=True)
        ).squeeze(-1)


class BeamSampler:
    """Draws of the candidates of a beam search, without replacement.

    By the Gumbel-top-k trick (Kool, van Hoof and Welling 2019, arXiv:1903.06059, section 2.3).
    """

    def __init__(self, seed: int | None, rows: Sequence[RowId]) -> None:
        seed = torch.Generator().seed() if seed is None else seed
        self._generators = [_generator(seed, place) for place in rows]

    def draw(self, scores: Tensor, rows: Sequence[int], count: int) -> Tensor:
        """Return the indices of candidates in the order of their draw, (rows, count).

        ``scores`` are log-probabilities up to a constant, (rows, candidates).
        """
        noise = torch.stack(
            [
                torch.empty(scores.shape[1], dtype=torch.float64).exponential_(
                    generator=self._generators[row]
                )
                for row in rows
            ]
        )
        return (scores.double() - noise.to(scores.device).log()).topk(count).indices


def _generator(seed: int, place: RowId) -> torch.Generator:
    key = int.from_bytes(blake3(f"{seed}\0{place}".encode()).digest(7))
    return torch.Generator().manual_seed(key)


def _rolls(seed: int, place: RowId, count: int) -> Tensor:
    return torch.rand(count, dtype=torch.float64, generator=_generator(seed, place))
