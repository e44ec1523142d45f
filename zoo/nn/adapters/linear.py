"""A linear map with an adapter."""

from abc import ABC, abstractmethod
from typing import cast

import torch
from torch import Tensor, nn

from zoo.errors import UsageError
from zoo.nn.kernels.onednn_linear import OneDnnLinear
from zoo.nn.kernels.small_batch_linear import SmallBatchLinear
from zoo.overrides import override

ALL_ROWS = slice(None)
Rows = dict[str, range]  # part of a fused matrix, such as the values' -> its rows


class LinearAdapter(nn.Module, ABC):
    """The change of a linear map by an adapter.

    A fused matrix, such as query, key and value in one, has several parts, and each may have an
    adapter.

    Args:
        rows: the parts that are adapted, and the rows of each.
        size: number of rows of the matrix, adapted or not.

    Attributes:
        can_merge: whether the changed map is a linear map again.
    """

    can_merge: bool = True

    def __init__(self, rows: Rows, size: int) -> None:
        super().__init__()
        self.rows = rows
        self.size = size

    @abstractmethod
    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, rows: slice = ALL_ROWS
    ) -> Tensor:
        """Compute the changed map.

        Args:
            x: (..., in).
            weight: the matrix, or some rows of it, (rows, in).
            bias: the same rows of the bias, (rows,).
            rows: these rows.

        Returns:
            (..., rows).
        """

    @abstractmethod
    def merge(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return matrix, (out, in), and bias, (out,), of the changed map."""

    def reset(self, weight: Tensor) -> None:
        """Set the values that depend on the matrix, (out, in), before training."""

    def spread(self, parts: "nn.ParameterDict", fill: Tensor) -> Tensor:
        """Return (out,): the values of the adapted parts, (rows,) each, and ``fill`` elsewhere."""
        pieces: list[Tensor] = []
        end = 0
        for name, rows in self.rows.items():
            pieces += [fill[end : rows.start], parts[name].flatten()]
            end = rows.stop
        return torch.cat([*pieces, fill[end:]])


class AdaptedLinear(nn.Linear):
    """``nn.Linear`` with an adapter."""

    adapter: LinearAdapter

    @override
    def forward(self, x: Tensor) -> Tensor:
        return self.adapter(x, self.weight, self.bias)  # type: ignore[no-any-return]


# Classes of linear maps that compute the same.
PLAIN = (nn.Linear, OneDnnLinear, SmallBatchLinear)


def can_adapt(module: nn.Module) -> bool:
    """Return whether a module is a linear map that can have an adapter.

    Another subclass of ``nn.Linear`` computes something else, unless it declares
    ``supports_adapter``.
    """
    if type(module) in (*PLAIN, AdaptedLinear):
        return True
    return bool(getattr(module, "supports_adapter", False))


def require_no_adapter(module: nn.Module) -> None:
    """Check that a part of a model has no adapter yet."""
    if getattr(module, "adapter", None) is not None:
        raise UsageError(
            "two adapters change the same part of the model, and one cannot be merged",
            "give those that merge first, and one that does not",
        )


def attach_adapter(module: nn.Module, adapter: LinearAdapter) -> None:
    """Give a linear map an adapter, in place."""
    require_no_adapter(module)
    linear = cast(nn.Linear, module)
    adapter.reset(linear.weight.detach())
    if type(module) in PLAIN:
        module.__class__ = AdaptedLinear
    module.adapter = adapter
