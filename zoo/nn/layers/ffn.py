"""The position-wise feed-forward network (arXiv:1706.03762, section 3.3)."""

from torch import Tensor, nn

from zoo.nn.layers.activations import activate, activation


class FeedForward(nn.Module):
    """Two linear maps with an activation between them, the same for every token.

    Args:
        hidden_size: width of the input and the output.
        intermediate_size: width between the two maps.
        act: name of the activation.
    """

    def __init__(self, *, hidden_size: int, intermediate_size: int, act: str) -> None:
        super().__init__()
        self.act = activation(act)
        self.up = nn.Linear(hidden_size, intermediate_size)
        self.down = nn.Linear(intermediate_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token: (batch, tokens, hidden) to the same shape."""
        return self.down(activate(self.act, self.up(x)))  # type: ignore[no-any-return]
