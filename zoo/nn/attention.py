"""Multi-head self-attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2)."""

from torch import Tensor, nn
from torch.nn import functional as F


def padding_mask(attention_mask: Tensor | None) -> Tensor | None:
    """Turn a mask over tokens into one over attention scores.

    A masked key gets a weight of exactly zero, so the outputs of real tokens do not depend on
    how far their row is padded. A row without any real token may look at all of its padding:
    its outputs mean nothing, but they are numbers, on every backend.

    Args:
        attention_mask: (batch, tokens), non-zero for real tokens; ``None`` where every token is
            real, which costs nothing in attention.

    Returns:
        (batch, 1, 1, tokens), true for the keys to look at, or ``None``.
    """
    if attention_mask is None:
        return None
    real = attention_mask != 0
    real = real | ~real.any(dim=-1, keepdim=True)
    return real[:, None, None, :]


class SelfAttention(nn.Module):
    """Every token looks at every other, in several heads side by side.

    Args:
        hidden_size: width of the input and the output.
        num_heads: how many heads share that width.
        dropout: probability of dropping an attention weight in training.
    """

    def __init__(self, *, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = (num_heads, hidden_size // num_heads)
        self.dropout = dropout
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix the tokens of each row.

        Args:
            x: (batch, tokens, hidden).
            mask: which keys to look at, broadcast to (batch, heads, queries, keys).

        Returns:
            (batch, tokens, hidden).
        """
        # one product for all three, then views: (batch, heads, tokens, head_dim) each
        q, k, v = (
            part.unflatten(-1, self.heads).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return self.out(mixed.transpose(1, 2).flatten(-2))  # type: ignore[no-any-return]
