"""Transformer blocks: attention, then a feed-forward network, each beside a residual path."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from zoo.nn.attention import SelfAttention
from zoo.nn.ffn import FeedForward

if TYPE_CHECKING:
    from zoo.nn.cache import LayerCache


class PostNormBlock(nn.Module):
    """An encoder block that normalises after each residual sum, as in the first Transformer.

    Args:
        hidden_size: width of the input and the output.
        num_heads: attention heads.
        intermediate_size: inner width of the feed-forward network.
        act: name of the feed-forward network's activation.
        layer_norm_eps: added to the variance in both norms.
        dropout: probability of dropping an element before each residual sum in training.
        attention_dropout: probability of dropping an attention weight in training.
        causal: see ``SelfAttention``.
        scale: see ``SelfAttention``.
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        num_heads: int,
        intermediate_size: int,
        act: str,
        layer_norm_eps: float,
        dropout: float,
        attention_dropout: float,
        causal: bool = False,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(
            hidden_size=hidden_size,
            num_heads=num_heads,
            dropout=attention_dropout,
            causal=causal,
            scale=scale,
        )
        self.attention_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.ffn = FeedForward(
            hidden_size=hidden_size, intermediate_size=intermediate_size, act=act
        )
        self.ffn_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, cache: "LayerCache | None" = None
    ) -> Tensor:
        """Transform (batch, tokens, hidden) to the same shape; the others as in attention."""
        x = self.attention_norm(x + self.dropout(self.attention(x, mask, cache)))
        return self.ffn_norm(x + self.dropout(self.ffn(x)))  # type: ignore[no-any-return]
