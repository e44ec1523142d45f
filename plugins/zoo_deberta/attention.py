"""Disentangled attention: separate scores of contents and of relative positions.

He, Liu, Gao and Chen 2021, arXiv:2006.03654, section 3.1; the buckets are of the second version,
described with the released code and in arXiv:2111.09543.

For a query at ``i`` and a key at ``j``, with ``r = row(i - j)`` of the table of relative positions:

    score = (q_i . k_j  +  q_i . K_r  +  k_j . Q_r) / sqrt(head_dim * terms)

``K`` and ``Q`` are the table through a projection for keys and one for queries. As ``r`` depends
only on ``i - j``, the scores come from products with one row per *difference*, without gathering
for each pair of tokens: see ``zoo.nn.layers.relative``.

Without gradients, two more things save time. The projected tables only depend on the weights,
and are cached after ``Deberta.optimize_for_inference``. And heads and rows are scored in groups
that are small enough for the intermediate results to stay in a core's cache.
"""

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from zoo.nn.adapters import LinearAdapter
from zoo.nn.capture import is_capturing_attention
from zoo.nn.kernels.attention import attend
from zoo.nn.kernels.onednn_linear import linear
from zoo.nn.layers.dropout import Dropout
from zoo.nn.layers.relative import relative_shift
from zoo_deberta.config import DebertaConfig
from zoo_deberta.positions import DisentangledPositions

GROUP = 1 << 19  # largest number of scores in a group: 2 MB in float32


class Context(NamedTuple):
    """The arguments of all blocks except the hidden state."""

    # (rows, hidden): the relative position embeddings; ``None`` without them, and where blocks have
    # cached their projection
    table: Tensor | None
    # (2 * tokens,), int64: the table's row for each difference ``i - j`` from ``tokens - 1`` down
    # to ``-tokens``; ``None`` where its rows are in that order
    rows: Tensor | None
    # (batch, 1, tokens, tokens), added to the scores; ``None`` for no mask
    mask: Tensor | None = None
    # (batch, tokens, 1): 1 for tokens, 0 for padding; ``None`` for all 1
    real: Tensor | None = None
    # (batch, tokens), int64: the document of each token of a packed row, counted from 1, 0 for
    # padding; ``None`` where each row is one document
    document_ids: Tensor | None = None
    # (batch, tokens), int64, from 0 in each document; ``None`` where each row is one document
    position_ids: Tensor | None = None
    # (batch, tokens, hidden): the input of keys and values, where it is not the queries'
    source: Tensor | None = None


class Projections(nn.Linear):
    """The projections to query, key and value as one matrix."""

    supports_adapter: ClassVar[bool] = True  # see ``zoo.nn.adapters``

    def __init__(self, hidden_size: int, *, key_bias: bool) -> None:
        super().__init__(hidden_size, 3 * hidden_size, bias=key_bias)
        self.adapter: LinearAdapter | None = None
        if not key_bias:
            self.query_bias = nn.Parameter(self.weight.new_zeros(hidden_size))
            self.value_bias = nn.Parameter(self.weight.new_zeros(hidden_size))

    def part(self, x: Tensor, first: int, last: int) -> Tensor:
        """Project to the parts from ``first`` to ``last`` of query (0), key (1) and value (2).

        Maps (..., hidden) to (..., (last - first) * hidden).
        """
        bias = self.bias
        if bias is None:
            no_bias = torch.zeros_like(self.query_bias)
            bias = torch.cat((self.query_bias, no_bias, self.value_bias))
        rows = slice(first * x.shape[-1], last * x.shape[-1])
        if self.adapter is not None:
            # The Hub's classes add the separate biases afterwards, so that an adapter has none.
            inner = None if self.bias is None else bias[rows]
            y = self.adapter(x, self.weight[rows], inner, rows)
            return y + bias[rows] if self.bias is None else y  # type: ignore[no-any-return]
        return linear(x, self.weight[rows], bias[rows])


class DisentangledAttention(nn.Module):
    """Self-attention by content and by relative position."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.dropout = config.attention_dropout
        self.heads = (config.num_heads, config.head_size)
        self.scale = (config.head_size * (1 + len(config.terms))) ** -0.5
        self.qkv = Projections(width, key_bias=config.key_bias)
        self.out = nn.Linear(width, width)
        self.terms = config.terms if config.relative_attention else ()
        self.shared = config.share_att_key
        self.position_dropout = Dropout(config.dropout)
        if "c2p" in self.terms and not self.shared:
            self.position_key = nn.Linear(width, width, bias=config.key_bias)
        if "p2c" in self.terms and not self.shared:
            self.position_query = nn.Linear(width, width)
        # Projections for the longest input; see ``Deberta.optimize_for_inference``.
        self.cached_positions: DisentangledPositions | None = None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Attend to the tokens of each row.

        Args:
            x: (batch, tokens, hidden).

        Returns:
            (batch, tokens, hidden).
        """
        if context.source is None:
            projected = self.qkv.part(x, 0, 3)
        else:
            keys_values = self.qkv.part(context.source, 1, 3)
            projected = torch.cat((self.qkv.part(x, 0, 1), keys_values), dim=-1)
        # (3, heads, batch, tokens, head_size)
        qkv = projected.view(*x.shape[:2], 3, *self.heads).permute(2, 3, 0, 1, 4)
        if context.table is None and self.cached_positions is not None:
            positions = self.cached_positions.part(slice(None), x.shape[1])
        else:
            positions = self.positions(context.table, context.rows)
        has_groups = x.is_cpu and not torch.is_grad_enabled()
        # An exported graph and captured attention have one call of the kernel.
        if has_groups:
            has_groups = not (torch.compiler.is_exporting() or is_capturing_attention())
        if has_groups:
            attended = self._attend_in_groups(qkv, positions, context.mask)
        else:
            attended = self._attend(qkv, positions, context.mask)
        return self.out(attended.flatten(-2))  # type: ignore[no-any-return]

    def positions(self, table: Tensor | None, rows: Tensor | None) -> DisentangledPositions:
        """Return the projected table; for the arguments, see ``Context``."""
        if table is None or not self.terms:
            return DisentangledPositions(None, None)
        table = self.position_dropout(table)
        keys = None
        queries = None
        if "c2p" in self.terms:
            keys = self.qkv.part(table, 1, 2) if self.shared else self.position_key(table)
            keys = self._by_difference(keys, rows).transpose(-1, -2)
        if "p2c" in self.terms:
            queries = self.qkv.part(table, 0, 1) if self.shared else self.position_query(table)
            queries = self._by_difference(queries, rows)
            queries = torch.cat((queries[:, :-1].flip(1), queries[:, :1]), 1).transpose(-1, -2)
        return DisentangledPositions(keys, queries)

    def _by_difference(self, table: Tensor, rows: Tensor | None) -> Tensor:
        """Split (rows, hidden) into (heads, differences, head_size), scaled as the scores."""
        heads = (table * self.scale).unflatten(-1, self.heads).transpose(0, 1)
        return heads if rows is None else heads[:, rows]  # type: ignore[no-any-return]

    def _attend(self, qkv: Tensor, positions: DisentangledPositions, mask: Tensor | None) -> Tensor:
        """Return the attention output of some heads and rows.

        Args:
            qkv: (3, heads, batch, tokens, head_size).

        Returns:
            (batch, tokens, heads, head_size).
        """
        q, k, v = qkv
        bias = mask
        if positions.keys is not None:
            bias = _sum(bias, relative_shift(q, positions.keys).transpose(0, 1))
        if positions.queries is not None:
            # The shift returns a line of scores for each key over all queries.
            scores = relative_shift(k, positions.queries).transpose(-1, -2)
            bias = _sum(bias, scores.transpose(0, 1))
        q, k, v = (part.transpose(0, 1) for part in (q, k, v))
        dropout = self.dropout if self.training else 0.0
        mixed = attend(q, k, v, bias, dropout=dropout, scale=self.scale)
        return mixed.transpose(1, 2)

    def _attend_in_groups(
        self, qkv: Tensor, positions: DisentangledPositions, mask: Tensor | None
    ) -> Tensor:
        """Return the attention output of all heads and rows, a group at a time."""
        count, batch, tokens = qkv.shape[1:4]
        pairs = max(1, GROUP // (2 * tokens * tokens))  # pairs of a head and a row in a group
        heads = min(pairs, count)
        rows = max(1, pairs // count)
        mixed = qkv.new_empty(batch, tokens, *self.heads)
        for first_head in range(0, count, heads):
            some_heads = slice(first_head, first_head + heads)
            head_positions = positions.part(some_heads, tokens)
            for first_row in range(0, batch, rows):
                some_rows = slice(first_row, first_row + rows)
                row_mask = None if mask is None else mask[some_rows]
                mixed[some_rows, :, some_heads] = self._attend(
                    qkv[:, some_heads, some_rows], head_positions, row_mask
                )
        return mixed


def _sum(bias: Tensor | None, scores: Tensor) -> Tensor:
    return scores if bias is None else bias + scores
