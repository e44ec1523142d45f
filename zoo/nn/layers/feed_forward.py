"""Feed-forward networks of Transformer blocks: the first one, and those with a gate.

Shazeer 2020, "GLU Variants Improve Transformer", arXiv:2002.05202. A block takes such a class as
its argument ``ffn_type``.
"""

from typing import Any

from torch import Tensor, nn

from zoo.nn.layers.activations import activate, activation
from zoo.nn.layers.dropout import Dropout
from zoo.overrides import override


class FeedForward(nn.Module):
    """The position-wise feed-forward network (arXiv:1706.03762, section 3.3).

    Args:
        hidden_size: width of input and output.
        intermediate_size: width between the linear maps.
        act: name of the activation function.
        bias: whether the linear maps have a bias.
        dropout: dropout probability of the input of the last linear map.
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        intermediate_size: int,
        act: str,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.act = activation(act)
        self.up = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.down = nn.Linear(intermediate_size, hidden_size, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token: (batch, tokens, hidden) to the same shape."""
        return self.down(self.dropout(self.inner(self.up(x))))  # type: ignore[no-any-return]

    def inner(self, x: Tensor) -> Tensor:
        """Map the output of ``up`` to the input of ``down``, (batch, tokens, intermediate)."""
        return activate(self.act, x)


class GatedFeedForward(FeedForward):
    """A feed-forward network with a gate (arXiv:2002.05202, equation 6).

    The first half of ``up`` is the input of the activation function, and the second half is
    multiplied by its output.
    """

    def __init__(
        self, *, hidden_size: int, intermediate_size: int, bias: bool = True, **options: Any
    ) -> None:
        super().__init__(
            hidden_size=hidden_size, intermediate_size=intermediate_size, bias=bias, **options
        )
        self.up = nn.Linear(hidden_size, 2 * intermediate_size, bias=bias)

    @override
    def inner(self, x: Tensor) -> Tensor:
        activated, linear = x.chunk(2, dim=-1)
        return activate(self.act, activated) * linear


class GLU(GatedFeedForward):
    """``GatedFeedForward`` with a sigmoid."""

    def __init__(self, **options: Any) -> None:
        super().__init__(act="sigmoid", **options)


class Bilinear(GatedFeedForward):
    """``GatedFeedForward`` without an activation function."""

    def __init__(self, **options: Any) -> None:
        super().__init__(act="linear", **options)


class ReGLU(GatedFeedForward):
    """``GatedFeedForward`` with ReLU."""

    def __init__(self, **options: Any) -> None:
        super().__init__(act="relu", **options)


class GEGLU(GatedFeedForward):
    """``GatedFeedForward`` with GELU."""

    def __init__(self, **options: Any) -> None:
        super().__init__(act="gelu", **options)


class SwiGLU(GatedFeedForward):
    """``GatedFeedForward`` with SiLU, that is Swish with a factor of 1."""

    def __init__(self, **options: Any) -> None:
        super().__init__(act="silu", **options)
