"""Multi-head self-attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def padding_mask(attention_mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Turn a mask over tokens into what is added to attention scores.

    A masked key gets a weight of exactly zero, so the outputs of real tokens do not depend on
    how far their row is padded. A row without any real token attends to all of its padding: its
    outputs mean nothing, but they are numbers, on every backend. (A boolean mask would mean a
    row of minus infinities there, and two more passes over the scores in ONNX to mend it.)

    Args:
        attention_mask: (batch, tokens), non-zero for real tokens; ``None`` where every token is
            real, which costs nothing in attention.
        dtype: of the scores.

    Returns:
        (batch, 1, 1, tokens), zero for real tokens and hugely negative for padding, or ``None``.
    """
    if attention_mask is None:
        return None
    lowest = torch.finfo(dtype).min / 2  # half, so that adding a score cannot overflow
    return ((attention_mask == 0).to(dtype) * lowest)[:, None, None, :]


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
            mask: added to the scores, broadcast to (batch, heads, queries, keys).

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
