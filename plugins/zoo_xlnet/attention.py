"""Attention by content, relative position and segment, with memory and a second stream.

Dai et al. 2019, "Transformer-XL", arXiv:1901.02860, section 3.3, and Yang et al. 2019,
arXiv:1906.08237, sections 2.3 to 2.5. The score of a query at ``i`` and a key at ``j`` is

    ((q_i + u) . k_j  +  (q_i + v) . r_(i-j)  +  (q_i + w) . s) / sqrt(head_size)

with learned biases ``u``, ``v`` and ``w``, a projection ``r`` of a sinusoidal encoding of the
distance, and one of two learned vectors ``s``: whether both tokens are of the same segment.

Keys and values come from the memory, the hidden states of earlier segments, and from the tokens.
Queries are the tokens (the content stream), and in pretraining also places whose tokens are to be
predicted (the query stream). The streams have the same weights, so that they are one tensor here.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from zoo.nn.layers.relative import shift
from zoo.nn.transformer import Attention
from zoo_xlnet.config import XLNetConfig

BASE = 10_000.0  # of the frequencies


class TwoStreamContext(NamedTuple):
    """The arguments of the blocks in addition to the hidden state.

    Attributes:
        tokens: number of tokens; further vectors of a row are its query stream.
        encodings: encodings of the distances from a key to a query, from ``keys - 1`` down to
            ``-tokens``, (directions, tokens + keys, hidden).
        mask: added to the scores, (batch, 1, queries, keys).
        other_segment: 1 where query and key are of different segments, else 0, (batch, 1, queries,
            keys); ``None`` if there is one segment.
        direction: index into the first axis of ``encodings``, (batch,), int64; ``None`` if there is
            one direction.
        columns: index into ``encodings`` of each key, (batch, targets, keys), int64, for the query
            stream; ``None`` without one.
        memory: earlier hidden states, (batch, memory, hidden), or ``None``.
    """

    tokens: int
    encodings: Tensor
    mask: Tensor
    other_segment: Tensor | None = None
    direction: Tensor | None = None
    columns: Tensor | None = None
    memory: Tensor | None = None


def distance_encodings(
    config: XLNetConfig, *, tokens: int, keys: int, like: Tensor, directions: int = 1
) -> Tensor:
    """Return the encodings of distances; see ``TwoStreamContext``.

    Angles are computed in float32 in models of all dtypes, as in the Hub's classes.

    Args:
        config: the configuration.
        tokens: number of tokens.
        keys: number of keys, including the memory.
        like: a tensor with the dtype and device of the result.
        directions: 1, or 2 to add the encodings of the negative distances.
    """
    width = config.hidden_size
    distances = torch.arange(keys - 1, -tokens - 1, -1, device=like.device).float()
    if config.clamp_len > 0:
        distances = distances.clamp(-config.clamp_len, config.clamp_len)
    frequencies = 1 / BASE ** (torch.arange(0, width, 2, device=like.device).float() / width)
    signs = torch.tensor([1.0, -1.0][:directions], device=like.device)
    angles = signs[:, None, None] * distances[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=-1).to(like.dtype)


class RelativeAttention(Attention):
    """Attention of one block; see the module.

    Args:
        config: the configuration.
    """

    def __init__(self, config: XLNetConfig) -> None:
        size = config.head_size
        width = config.hidden_size
        super().__init__(config.num_heads, size, config.dropout, scale=size**-0.5)
        self.query, self.key, self.value, self.relative = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.out = nn.Linear(width, width, bias=False)
        self.content_bias, self.position_bias, self.segment_bias = (
            nn.Parameter(torch.zeros(self.heads)) for _ in range(3)
        )
        self.segments = nn.Parameter(torch.zeros(2, *self.heads))

    def forward(self, x: Tensor, context: TwoStreamContext) -> Tensor:
        """Attend to the memory and to the tokens of each row.

        Args:
            x: (batch, queries, hidden): the tokens, then the query stream.
            context: the further arguments.

        Returns:
            (batch, queries, hidden).
        """
        source = x[:, : context.tokens]
        if context.memory is not None:
            source = torch.cat((context.memory, source), dim=1)
        (q,), (k,), (v,) = (
            self.split(project(states), 1)
            for project, states in ((self.query, x), (self.key, source), (self.value, source))
        )
        bias = self.position_scores(q, context)
        if context.other_segment is not None:
            bias = bias + self.segment_scores(q) * context.other_segment
        bias = bias * self.heads[1] ** -0.5 + context.mask
        return self.attend(q + self.content_bias[:, None], k, v, bias)

    def position_scores(self, q: Tensor, context: TwoStreamContext) -> Tensor:
        """Return the scores by relative position, (batch, heads, queries, keys)."""
        (encoded,) = self.split(self.relative(context.encodings), 1)
        if context.direction is not None:
            encoded = encoded[context.direction]
        lines = (q + self.position_bias[:, None]) @ encoded.transpose(-1, -2)
        scores = shift(lines[:, :, : context.tokens])
        if context.columns is None:
            return scores
        columns = context.columns[:, None].expand(-1, lines.shape[1], -1, -1)
        return torch.cat((scores, lines[:, :, context.tokens :].gather(-1, columns)), dim=2)

    def segment_scores(self, q: Tensor) -> Tensor:
        """Return how much higher the scores of other segments are, (batch, heads, queries, 1).

        A score that all keys share, such as the one of the same segment, changes nothing.
        """
        difference = self.segments[1] - self.segments[0]
        return (q + self.segment_bias[:, None]) @ difference[..., None]
