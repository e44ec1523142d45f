"""Layers that learn how much of what they are given passes as it is."""

from torch import Tensor, nn


class Highway(nn.Module):
    """y = g relu(T x) + (1 - g) x, g = sigmoid(C x) (Srivastava et al. 2015, arXiv:1505.00387).

    Args:
        width: of x and y.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.carry = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., width)."""
        gate: Tensor = self.carry(x).sigmoid()
        new: Tensor = self.transform(x).relu()
        return x + gate * (new - x)
