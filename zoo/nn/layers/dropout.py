"""The dropout layer."""

from torch import Tensor, nn

from zoo.nn.kernels.dropout import dropout


class Dropout(nn.Dropout):
    """``nn.Dropout`` by ``dropout``."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop values of (...)."""
        return dropout(x, self.p, training=self.training)
