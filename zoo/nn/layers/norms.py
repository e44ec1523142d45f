"""Norms other than torch's ``LayerNorm``."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.RMSNorm):
    """Root mean square layer norm (Zhang and Sennrich 2019, arXiv:1910.07467).

    The mean square is computed in float32 in half precision, as in released code.
    """

    def __init__(self, hidden_size: int, eps: float, bias: bool = False) -> None:
        super().__init__(hidden_size)
        self.epsilon = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalize (..., hidden)."""
        if x.dtype == torch.float32 == self.weight.dtype and not torch.compiler.is_exporting():
            return F.rms_norm(x, self.normalized_shape, self.weight, self.epsilon)
        mean_square = self.widened(x).square().mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(mean_square + self.epsilon)).to(self.weight.dtype)

    def widened(self, x: Tensor) -> Tensor:
        """Return ``x`` in the dtype in which the mean square is computed."""
        return x if x.dtype == torch.float64 else x.to(torch.float32)
