"""Self-attention in which some tokens attend to all tokens of their text, and all tokens to them.

Beltagy, Peters and Cohan 2020, arXiv:2004.05150, section 3.1. All other tokens attend to a window;
see ``zoo.nn.kernels.local_attention``.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.capture import is_capturing_attention
from zoo.nn.kernels.attention import attend
from zoo.nn.kernels.dropout import dropout as drop
from zoo.nn.local_blocks import GlobalTokens, LocalAndGlobal
from zoo.nn.transformer import SelfAttention
from zoo.overrides import override


class GlobalSelfAttention(SelfAttention):
    """Self-attention whose global tokens have projections of their own.

    Args:
        hidden_size: width of input and output.
        **options: further arguments of ``SelfAttention``.

    Attributes:
        global_qkv: queries of the global tokens, and keys and values of all tokens for them.
    """

    def __init__(self, *, hidden_size: int, **options: Any) -> None:
        super().__init__(hidden_size=hidden_size, **options)
        self.global_qkv = nn.Linear(hidden_size, 3 * hidden_size)

    @override
    def forward(self, x: Tensor, mask: Any = None, *arguments: Any) -> Tensor:
        if not isinstance(mask, LocalAndGlobal):
            return super().forward(x, mask, *arguments)
        queries, keys, values = self.split(self.qkv(x), 3)
        dropout = self.dropout if self.training else 0.0
        if is_capturing_attention():
            return self._attend_at_once(x, queries, keys, values, mask, dropout)
        local = attend(queries, keys, values, mask.local, dropout=dropout)
        local = local.transpose(1, 2).flatten(-2)
        of_global = self._attend_globally(x, mask.tokens, dropout)
        return self.out(mask.tokens.write(local, of_global))  # type: ignore[no-any-return]

    def _attend_globally(self, x: Tensor, tokens: GlobalTokens, dropout: float) -> Tensor:
        """Return the attention of the global tokens to all tokens, (batch, globals, hidden)."""
        if self._is_cheaper_unprojected(x, tokens):
            return self._attend_unprojected(x, tokens, dropout)
        hidden = x.shape[-1]
        if type(self.global_qkv) is nn.Linear:
            weight = self.global_qkv.weight
            bias = self.global_qkv.bias
            projected = F.linear(tokens.take(x), weight[:hidden], bias[:hidden])
            (queries,) = self.split(projected, 1)
            keys, values = self.split(F.linear(x, weight[hidden:], bias[hidden:]), 2)
        else:  # An adapter or a quantized map takes its place.
            projected = self.global_qkv(x)
            (queries,) = self.split(tokens.take(projected[..., :hidden]), 1)
            keys, values = self.split(projected[..., hidden:], 2)
        mixed = attend(queries, keys, values, tokens.mask, dropout=dropout)
        return mixed.transpose(1, 2).flatten(-2)

    def _is_cheaper_unprojected(self, x: Tensor, tokens: GlobalTokens) -> bool:
        """Return whether few queries are mapped to the width of ``x``, instead of all keys."""
        count = tokens.indices.shape[1]
        is_plain = type(self.global_qkv) is nn.Linear and x.dtype in (torch.float32, torch.float64)
        return is_plain and isinstance(count, int) and 2 * count <= self.heads[1]

    def _attend_unprojected(self, x: Tensor, tokens: GlobalTokens, dropout: float) -> Tensor:
        """Return the same as ``_attend_globally``, by another order of the products.

        The score q (W x + b)^T is (q W) x^T, up to a number that is the same for all keys, which
        a softmax does not change. The mean of values W x + b is W times the mean of x, plus b.
        """
        heads, size = self.heads
        batch, _, hidden = x.shape
        query_weight, key_weight, value_weight = self.global_qkv.weight.chunk(3)
        query_bias, _, value_bias = self.global_qkv.bias.chunk(3)
        (queries,) = self.split(F.linear(tokens.take(x), query_weight, query_bias), 1)
        queries = queries * size**-0.5
        queries = queries @ key_weight.unflatten(0, (heads, size))  # type: ignore[no-untyped-call]
        count = queries.shape[2]  # (batch, heads, globals, hidden)
        scores = queries.flatten(1, 2) @ x.transpose(1, 2)
        if tokens.mask is not None:
            scores = scores.unflatten(1, (heads, count)) + tokens.mask
            scores = scores.flatten(1, 2)
        weights = drop(scores.softmax(-1), dropout)  # (batch, heads * globals, tokens)
        means = (weights @ x).view(batch, heads, count, hidden)
        mixed = means @ value_weight.unflatten(0, (heads, size)).transpose(1, 2)  # type: ignore[no-untyped-call]
        totals = weights.sum(-1).view(batch, heads, count, 1)  # 1 without dropout.
        mixed = mixed + totals * value_bias.view(heads, 1, size)
        return mixed.transpose(1, 2).flatten(-2)  # type: ignore[no-any-return]

    def _attend_at_once(
        self,
        x: Tensor,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: LocalAndGlobal,
        dropout: float,
    ) -> Tensor:
        """Return the output by one call of the kernel, which shows the attention of all tokens.

        Heads are twice as wide: local queries are zero in one half, and global ones in the other.
        """
        tokens = mask.tokens
        local_mask = mask.local
        assert isinstance(local_mask, Tensor), "attention is captured with masks"
        batch, _, length, size = queries.shape
        is_global = torch.zeros(batch, length, 1, dtype=torch.bool, device=x.device)
        is_global = tokens.write(is_global, tokens.is_global[..., None])[:, None]
        global_queries, global_keys, global_values = self.split(self.global_qkv(x), 3)
        joint_queries = torch.cat(
            [queries.masked_fill(is_global, 0), global_queries.masked_fill(~is_global, 0)], dim=-1
        )
        joint_keys = torch.cat([keys, global_keys], dim=-1)
        joint_values = torch.cat([values, global_values], dim=-1)
        global_mask = torch.zeros((), dtype=x.dtype, device=x.device)
        if tokens.mask is not None:
            width = tokens.mask.shape[-1]
            of_rows = torch.zeros(batch, length, width, dtype=x.dtype, device=x.device)
            global_mask = tokens.write(of_rows, tokens.mask[:, 0])[:, None]
        joint_mask = torch.where(is_global, global_mask, local_mask)
        joint = attend(
            joint_queries, joint_keys, joint_values, joint_mask, dropout=dropout, scale=size**-0.5
        )
        mixed = torch.where(is_global, joint[..., size:], joint[..., :size])
        return self.out(mixed.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]
