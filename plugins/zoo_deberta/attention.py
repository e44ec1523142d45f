"""Disentangled attention: what tokens are and how far apart they are, scored apart.

He, Liu, Gao and Chen 2021, arXiv:2006.03654, section 3.1; the buckets are of the second version,
described with the released code and in arXiv:2111.09543.

For a query at ``i`` and a key at ``j``, with ``r = row(i - j)`` of the table of relative positions:

    score = (q_i . k_j  +  q_i . K_r  +  k_j . Q_r) / sqrt(head_dim * terms)

``K`` and ``Q`` are the table through a projection for keys and one for queries. As ``r`` depends
on ``i - j`` alone, one row per *difference* is enough: the products with all rows, lined up by
difference, are the scores after each line is shifted by one against the line before. Shifting
is a change of strides, so nothing is gathered for the pairs of tokens.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo_deberta.config import DebertaConfig


class Context(NamedTuple):
    """What all blocks are told beside the tokens' vectors.

    Attributes:
        table: (rows, hidden), the embeddings of relative positions; ``None`` without them.
        rows: (2 * tokens,), int64: the table's row for each difference ``i - j`` from
            ``tokens - 1`` down to ``-tokens``; ``None`` where its rows are already in that order.
        mask: added to the scores, (batch, 1, tokens, tokens); ``None`` for none.
        real: (batch, tokens, 1), one for tokens and zero for padding; ``None`` for all ones.
    """

    table: Tensor | None
    rows: Tensor | None
    mask: Tensor | None
    real: Tensor | None


def bucket(difference: int, buckets: int, farthest: int) -> int:
    """Return the bucket of a difference of positions: near ones alone, far ones together.

    Up to half of the buckets in each direction hold one difference each; the others grow with
    the logarithm, and the last one ends at ``farthest``.
    """
    middle = buckets // 2
    if abs(difference) <= middle:
        return difference
    part = math.log(abs(difference) / middle) / math.log((farthest - 1) / middle)
    return (math.ceil(part * (middle - 1)) + middle) * (1 if difference > 0 else -1)


def rows_by_difference(config: DebertaConfig) -> Sequence[int]:
    """Return the table's row for each difference from ``max_positions - 1`` down to its negative
    and one more.
    """
    reach, found = config.reach, []
    for difference in range(config.max_positions - 1, -config.max_positions - 1, -1):
        if config.position_buckets > 0:
            difference = bucket(difference, config.position_buckets, config.span)
        found.append(min(max(difference + reach, 0), 2 * reach - 1))
    return found


class Projections(nn.Linear):
    """Query, key and value, one below the other in one matrix.

    Args:
        hidden_size: width of the input and of each.
        bias: whether there is a bias for all three.
    """

    def __init__(self, hidden_size: int, *, bias: bool = True) -> None:
        super().__init__(hidden_size, 3 * hidden_size, bias=bias)

    def part(self, x: Tensor, first: int, last: int) -> Tensor:
        """Project to some of the three: (..., hidden) to (..., (last - first) * hidden)."""
        rows = slice(first * x.shape[-1], last * x.shape[-1])
        return F.linear(x, self.weight[rows], self.biases()[rows])

    def biases(self) -> Tensor:
        """Return the biases of all three."""
        return self.bias


class KeylessProjections(Projections):
    """The same without a bias for keys, as in version 1."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size, bias=False)
        self.query_bias = nn.Parameter(self.weight.new_zeros(hidden_size))
        self.value_bias = nn.Parameter(self.weight.new_zeros(hidden_size))

    def biases(self) -> Tensor:
        """See ``Projections``."""
        return torch.cat((self.query_bias, torch.zeros_like(self.query_bias), self.value_bias))


class DisentangledAttention(nn.Module):
    """Every token looks at every other, by content and by relative position.

    Args:
        config: the shape.
    """

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads = (config.num_heads, width // config.num_heads)
        self.dropout = config.attention_dropout
        self.scale = (self.heads[1] * (1 + len(config.terms))) ** -0.5
        self.qkv = (Projections if config.key_bias else KeylessProjections)(width)
        self.out = nn.Linear(width, width)
        self.terms = config.terms if config.relative_attention else ()
        self.shared = config.share_att_key
        self.position_dropout = nn.Dropout(config.dropout)
        if "c2p" in self.terms and not self.shared:
            self.position_key = nn.Linear(width, width, bias=config.key_bias)
        if "p2c" in self.terms and not self.shared:
            self.position_query = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Context, queries: Tensor | None = None) -> Tensor:
        """Mix the tokens of each row.

        Args:
            x: (batch, tokens, hidden): what is looked at.
            context: relative positions and the mask.
            queries: (batch, tokens, hidden): what looks at it; ``None`` for ``x``.

        Returns:
            (batch, tokens, hidden).
        """
        if queries is None:
            projected = self.qkv.part(x, 0, 3)
        else:
            projected = torch.cat((self.qkv.part(queries, 0, 1), self.qkv.part(x, 1, 3)), dim=-1)
        # (heads, batch, tokens, head_dim) each
        q, k, v = projected.view(*x.shape[:2], 3, *self.heads).permute(2, 3, 0, 1, 4)
        bias = context.mask
        if context.table is not None and self.terms:
            positions = self._positions(q, k, context.table, context.rows).transpose(0, 1)
            bias = positions if bias is None else positions + bias
        mixed = F.scaled_dot_product_attention(
            q.transpose(0, 1),
            k.transpose(0, 1),
            v.transpose(0, 1),
            attn_mask=bias,
            dropout_p=self.dropout if self.training else 0.0,
            scale=self.scale,
        )
        return self.out(mixed.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]

    def _positions(self, q: Tensor, k: Tensor, table: Tensor, rows: Tensor | None) -> Tensor:
        """Score contents against positions: (heads, batch, tokens, tokens)."""
        table = self.position_dropout(table)
        scores: Tensor | None = None
        if "c2p" in self.terms:
            keys = self.qkv.part(table, 1, 2) if self.shared else self.position_key(table)
            scores = self._by_difference(q, keys, rows)
        if "p2c" in self.terms:
            queries = self.qkv.part(table, 0, 1) if self.shared else self.position_query(table)
            # each line belongs to a key, and runs over queries in their order
            from_keys = self._by_difference(k, queries, rows, reverse=True)
            from_keys = from_keys.transpose(-1, -2)
            scores = from_keys if scores is None else scores + from_keys
        assert scores is not None, "forward asks only where there is a term"
        return scores

    def _by_difference(
        self, content: Tensor, table: Tensor, rows: Tensor | None, *, reverse: bool = False
    ) -> Tensor:
        """Multiply contents with the rows of their differences.

        Args:
            content: (heads, batch, tokens, head_dim).
            table: (rows, hidden), projected.
            rows: see ``Context``.
            reverse: the contents are keys, whose difference to a query at ``i`` grows with it.

        Returns:
            (heads, batch, tokens, tokens): for each content, the tokens at the other end.
        """
        heads = (table * self.scale).unflatten(-1, self.heads).transpose(0, 1)
        if rows is not None:
            heads = heads[:, rows]
        if reverse:  # from 1 - tokens up to tokens: for a key at j, queries j' - j
            heads = torch.cat((heads[:, :-1].flip(1), heads[:, :1]), dim=1)
        lines = content.flatten(1, 2) @ heads.transpose(-1, -2)
        return shift(lines.view(*content.shape[:3], -1))


def shift(lines: Tensor) -> Tensor:
    """Move line ``i`` left by ``tokens - 1 - i``, and keep ``tokens`` of its elements: a view.

    Args:
        lines: (..., tokens, 2 * tokens), contiguous.

    Returns:
        (..., tokens, tokens).
    """
    tokens = lines.shape[-2]
    flat = lines.flatten(-2)[..., tokens - 1 : -1]
    return flat.reshape(*flat.shape[:-1], tokens, 2 * tokens - 1)[..., :tokens]
