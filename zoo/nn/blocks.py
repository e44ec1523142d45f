"""Transformer blocks: attention, then a feed-forward network, each beside a residual path."""

from typing import Any

from torch import Tensor, nn

from zoo.nn.layers.ffn import FeedForward


class PostNormBlock(nn.Module):
    """An encoder block that normalises after each residual sum, as in the first Transformer.

    Args:
        attention: mixes the tokens of each row: (batch, tokens, hidden) to the same shape.
        hidden_size: width of the input and the output.
        intermediate_size: inner width of the feed-forward network.
        act: name of the feed-forward network's activation.
        layer_norm_eps: added to the variance in both norms.
        dropout: probability of dropping an element before each residual sum in training.
    """

    def __init__(
        self,
        attention: nn.Module,
        *,
        hidden_size: int,
        intermediate_size: int,
        act: str,
        layer_norm_eps: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.ffn = FeedForward(
            hidden_size=hidden_size, intermediate_size=intermediate_size, act=act
        )
        self.ffn_norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, *given: Any) -> Tensor:
        """Transform (batch, tokens, hidden) to the same shape; the others as in attention."""
        x = self.attention_norm(x + self.dropout(self.attention(x, *given)))
        return self.ffn_norm(x + self.dropout(self.ffn(x)))  # type: ignore[no-any-return]


class PreNormBlock(PostNormBlock):
    """The same parts, with the norms before attention and feed-forward network.

    What the last of such blocks returns is normalised once more, see ``Encoder.final_norm``.
    """

    def forward(self, x: Tensor, *given: Any) -> Tensor:
        """See ``PostNormBlock``."""
        x = x + self.dropout(self.attention(self.attention_norm(x), *given))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))  # type: ignore[no-any-return]
