"""Checks for NaN in weights, which kernels may turn into numbers: a maximum, or an int8 product."""

from typing import TYPE_CHECKING

from zoo.errors import NonFiniteError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn


def require_no_nan(model: "nn.Module", source: "Path | str") -> None:
    """Check the parameters of a model."""
    for name, parameter in model.named_parameters():
        # a sum is fast, and NaN if any number is; infinities may also make one
        if parameter.is_floating_point() and parameter.sum().isnan() and parameter.isnan().any():
            raise NonFiniteError(f"{source}: the weight {name} holds NaN")


def holds_nan(values: "NDArray[np.floating]") -> bool:
    """Return whether an array holds NaN."""
    import numpy as np

    with np.errstate(all="ignore"):  # overflow of a sum
        return bool(np.isnan(values.sum()) and np.isnan(values).any())
