"""Highway layers (Srivastava et al. 2015, arXiv:1505.00387)."""

from torch import Tensor, nn


class Highway(nn.Module):
    """y = g relu(T x) + (1 - g) x, where the gate is g = sigmoid(C x).

    Args:
        width: width of x and y.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.carry = nn.Linear(width, width)
        self.transform = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., width) to the same shape."""
        gate: Tensor = self.carry(x).sigmoid()
        transformed: Tensor = self.transform(x).relu()
        return x + gate * (transformed - x)
