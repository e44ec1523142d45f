"""Bottleneck adapters: a small feed-forward network with a residual connection."""

from typing import cast

from torch import Tensor, nn

from zoo.nn.adapters.linear import ALL_ROWS, LinearAdapter, require_no_adapter
from zoo.nn.kernels.onednn_linear import linear
from zoo.nn.layers.activations import activate, activation
from zoo.overrides import override

INIT_STD = 1e-2  # so that the network is close to 0 at first (arXiv:1902.00751, section 2.1)


class Bottleneck(nn.Module):
    """A feed-forward network with few units between: scaling * up(act(down(x)))."""

    def __init__(self, width: int, size: int, *, act: str, scaling: float) -> None:
        super().__init__()
        self.down = nn.Linear(width, size)
        self.up = nn.Linear(size, width)
        self.act = activation(act)
        self.scaling = scaling
        for part in (self.down, self.up):
            nn.init.trunc_normal_(part.weight, std=INIT_STD, a=-2 * INIT_STD, b=2 * INIT_STD)
            nn.init.zeros_(part.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., width) to the same shape."""
        return self.up(activate(self.act, self.down(x))) * self.scaling  # type: ignore[no-any-return]


class BottleneckAdapter(LinearAdapter):
    """A bottleneck after a linear map, whose output is added to the map's."""

    # Houlsby et al. 2019 (arXiv:1902.00751) put one after the attention and one after the
    # feed-forward network of a block, before the residual sum. Pfeiffer et al. 2020
    # (arXiv:2005.00247) put one after the feed-forward network. Where a norm follows the residual
    # sum, it reads the normalized sum; its output is added to the sum and normalized again, as in
    # the library of that paper.

    can_merge = False

    def __init__(self, width: int, size: int, *, act: str, scaling: float) -> None:
        super().__init__({"0": range(width)}, width)
        self.bottleneck = Bottleneck(width, size, act=act, scaling=scaling)

    @override
    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, rows: slice = ALL_ROWS
    ) -> Tensor:
        y = linear(x, weight, bias)
        return y + self.bottleneck(y)  # type: ignore[no-any-return]

    @override
    def merge(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        raise NotImplementedError("a bottleneck is not linear")


class AdaptedNorm(nn.LayerNorm):
    """``nn.LayerNorm`` of a residual sum, to which a bottleneck adds after it read the norm."""

    adapter: Bottleneck

    @override
    def forward(self, x: Tensor) -> Tensor:
        normalized = super().forward(x)
        return super().forward(x + self.adapter(normalized))


def attach_to_norm(module: nn.Module, adapter: Bottleneck) -> None:
    """Give a norm a bottleneck, in place."""
    require_no_adapter(module)
    assert type(module) is nn.LayerNorm, "of a block of this package"
    module.__class__ = AdaptedNorm
    cast(AdaptedNorm, module).adapter = adapter


def attach_beside(module: nn.Module, adapter: Bottleneck) -> None:
    """Give a feed-forward network a bottleneck that reads its input, in place."""
    require_no_adapter(module)
    module.adapter = adapter
    module.register_forward_hook(_add_beside)


def _add_beside(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output + cast(Tensor, module.get_submodule("adapter")(args[0]))
