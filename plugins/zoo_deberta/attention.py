"""Disentangled attention: what tokens are and how far apart they are, scored apart.

He, Liu, Gao and Chen 2021, arXiv:2006.03654, section 3.1; the buckets are of the second version,
described with the released code and in arXiv:2111.09543.

For a query at ``i`` and a key at ``j``, with ``r = row(i - j)`` of the table of relative positions:

    score = (q_i . k_j  +  q_i . K_r  +  k_j . Q_r) / sqrt(head_dim * terms)

``K`` and ``Q`` are the table through a projection for keys and one for queries. As ``r`` depends
on ``i - j`` alone, one row per *difference* is enough: the products with all rows, lined up by
difference, are the scores after each line is shifted by one against the line before. Shifting
is a change of strides, so nothing is gathered for the pairs of tokens.

Without gradients two more things save time. The projected tables depend on weights alone, and a
model that is told that those stay as they are keeps them. And heads and texts are scored in groups
so small that what is between products stays in a core's cache.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.layers.relative import relative_shift
from zoo_deberta.config import DebertaConfig
from zoo_deberta.positions import Positions

GROUP = 1 << 19  # how many scores a group has at most: 2 MB of them in float32


class Context(NamedTuple):
    """What all blocks are told beside the tokens' vectors.

    Attributes:
        table: (rows, hidden), the embeddings of relative positions; ``None`` without them, and
            where blocks have kept what they make of it.
        rows: (2 * tokens,), int64: the table's row for each difference ``i - j`` from
            ``tokens - 1`` down to ``-tokens``; ``None`` where its rows are already in that order.
        mask: added to the scores, (batch, 1, tokens, tokens); ``None`` for none.
        real: (batch, tokens, 1), one for tokens and zero for padding; ``None`` for all ones.
        document_ids: (batch, tokens), int64: the document of each token of a packed row, counted
            from 1, 0 for padding; ``None`` where each row is one document.
        position_ids: (batch, tokens), int64, from 0 in each document; ``None`` where each row is
            one document.
        source: (batch, tokens, hidden), the tokens that are looked at, if they are not those that
            look.
    """

    table: Tensor | None
    rows: Tensor | None
    mask: Tensor | None = None
    real: Tensor | None = None
    document_ids: Tensor | None = None
    position_ids: Tensor | None = None
    source: Tensor | None = None


class Projections(nn.Linear):
    """Query, key and value, one below the other in one matrix.

    Args:
        hidden_size: width of the input and of each.
        key_bias: whether there is one bias for all three; else queries and values have their own.
    """

    def __init__(self, hidden_size: int, *, key_bias: bool) -> None:
        super().__init__(hidden_size, 3 * hidden_size, bias=key_bias)
        if not key_bias:
            self.query_bias, self.value_bias = (
                nn.Parameter(self.weight.new_zeros(hidden_size)) for _ in range(2)
            )

    def part(self, x: Tensor, first: int, last: int) -> Tensor:
        """Project to some of the three: (..., hidden) to (..., (last - first) * hidden)."""
        bias = self.bias
        if bias is None:
            none = torch.zeros_like(self.query_bias)
            bias = torch.cat((self.query_bias, none, self.value_bias))
        rows = slice(first * x.shape[-1], last * x.shape[-1])
        return F.linear(x, self.weight[rows], bias[rows])


class DisentangledAttention(nn.Module):
    """Every token looks at every other, by content and by relative position.

    Args:
        config: the shape.
    """

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        width, self.dropout = config.hidden_size, config.attention_dropout
        self.heads = (config.num_heads, config.head_size)
        self.scale = (config.head_size * (1 + len(config.terms))) ** -0.5
        self.qkv = Projections(width, key_bias=config.key_bias)
        self.out = nn.Linear(width, width)
        self.terms = config.terms if config.relative_attention else ()
        self.shared = config.share_att_key
        self.position_dropout = nn.Dropout(config.dropout)
        if "c2p" in self.terms and not self.shared:
            self.position_key = nn.Linear(width, width, bias=config.key_bias)
        if "p2c" in self.terms and not self.shared:
            self.position_query = nn.Linear(width, width)
        self.kept: Positions | None = None  # for the longest input; see ``Deberta.quicken``

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix the tokens of each row.

        Args:
            x: (batch, tokens, hidden).
            context: what is looked at, relative positions and the mask.

        Returns:
            (batch, tokens, hidden).
        """
        if context.source is None:
            projected = self.qkv.part(x, 0, 3)
        else:
            seen = self.qkv.part(context.source, 1, 3)
            projected = torch.cat((self.qkv.part(x, 0, 1), seen), dim=-1)
        # (3, heads, batch, tokens, head_dim)
        qkv = projected.view(*x.shape[:2], 3, *self.heads).permute(2, 3, 0, 1, 4)
        if context.table is None and self.kept is not None:
            positions = self.kept.part(slice(None), x.shape[1])
        else:
            positions = self.positions(context.table, context.rows)
        alone = torch.is_grad_enabled() or torch.compiler.is_exporting() or not x.is_cpu
        attend = self._attend if alone else self._attend_in_groups
        return self.out(attend(qkv, positions, context.mask).flatten(-2))  # type: ignore[no-any-return]

    def positions(self, table: Tensor | None, rows: Tensor | None) -> Positions:
        """Project the table of a ``Context``."""
        if table is None or not self.terms:
            return Positions(None, None)
        table, keys, queries = self.position_dropout(table), None, None
        if "c2p" in self.terms:
            keys = self.qkv.part(table, 1, 2) if self.shared else self.position_key(table)
            keys = self._by_difference(keys, rows).transpose(-1, -2)
        if "p2c" in self.terms:
            queries = self.qkv.part(table, 0, 1) if self.shared else self.position_query(table)
            queries = self._by_difference(queries, rows)
            queries = torch.cat((queries[:, :-1].flip(1), queries[:, :1]), 1).transpose(-1, -2)
        return Positions(keys, queries)

    def _by_difference(self, table: Tensor, rows: Tensor | None) -> Tensor:
        """Split (rows, hidden) into (heads, differences, head_dim), scaled as scores are."""
        heads = (table * self.scale).unflatten(-1, self.heads).transpose(0, 1)
        return heads if rows is None else heads[:, rows]  # type: ignore[no-any-return]

    def _attend(self, qkv: Tensor, positions: Positions, mask: Tensor | None) -> Tensor:
        """Mix the values of some heads and rows.

        Args:
            qkv: (3, heads, batch, tokens, head_dim).
            positions: of those heads, for as many tokens.
            mask: see ``Context``, of those rows.

        Returns:
            (batch, tokens, heads, head_dim).
        """
        (q, k, v), bias = qkv, mask
        if positions.keys is not None:
            bias = _sum(bias, relative_shift(q, positions.keys).transpose(0, 1))
        if positions.queries is not None:
            # each line belongs to a key, and runs over queries in their order
            bias = _sum(
                bias, relative_shift(k, positions.queries).transpose(-1, -2).transpose(0, 1)
            )
        q, k, v = (part.transpose(0, 1) for part in (q, k, v))
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, dropout_p=dropout, scale=self.scale
        )
        return mixed.transpose(1, 2)

    def _attend_in_groups(self, qkv: Tensor, positions: Positions, mask: Tensor | None) -> Tensor:
        """The same for all heads and rows, some at a time."""
        count, batch, tokens = qkv.shape[1:4]
        pairs = max(1, GROUP // (2 * tokens * tokens))  # of a head and a row
        heads, rows = min(pairs, count), max(1, pairs // count)
        mixed = qkv.new_empty(batch, tokens, *self.heads)
        for first in range(0, count, heads):
            some = slice(first, first + heads)
            own = positions.part(some, tokens)
            for row in range(0, batch, rows):
                of = slice(row, row + rows)
                seen = None if mask is None else mask[of]
                mixed[of, :, some] = self._attend(qkv[:, some, of], own, seen)
        return mixed


def _sum(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else one + other
