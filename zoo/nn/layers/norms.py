"""Norms other than torch's ``LayerNorm``."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.RMSNorm):
    """Root mean square layer norm (Zhang and Sennrich 2019, arXiv:1910.07467).

    The mean square is computed in float32 in half precision, as in released code.

    Args:
        hidden_size: width of the input.
        eps: epsilon, added to the mean square.
        bias: ignored; the norm has none.
        offset: number that is added to the weights. With 1, they begin at 0, and weight decay
            pulls the factors to 1. The product is then rounded once in half precision.
    """

    def __init__(
        self, hidden_size: int, eps: float, bias: bool = False, *, offset: float = 0.0
    ) -> None:
        super().__init__(hidden_size)
        self.epsilon = eps
        self.offset = offset
        if offset:
            nn.init.constant_(self.weight, 1.0 - offset)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize (..., hidden)."""
        if x.dtype == torch.float32 == self.weight.dtype and not torch.compiler.is_exporting():
            weight = self.weight + self.offset if self.offset else self.weight
            return F.rms_norm(x, self.normalized_shape, weight, self.epsilon)
        mean_square = self.widened(x).square().mean(-1, keepdim=True)
        normalized = x * torch.rsqrt(mean_square + self.epsilon)
        if self.offset:
            return (normalized * (self.widened(self.weight) + self.offset)).to(x.dtype)
        return self.weight * normalized.to(self.weight.dtype)

    def widened(self, x: Tensor) -> Tensor:
        """Return ``x`` in the dtype in which the mean square is computed."""
        return x if x.dtype == torch.float64 else x.to(torch.float32)
