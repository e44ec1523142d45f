"""Checks that numbers are finite: of files that are read, and of weights that were computed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def is_finite(tensor: "Tensor | NDArray[Any]") -> bool:
    """Return whether a tensor of torch or numpy holds neither NaN nor infinity."""
    # NaN and infinity minus themselves are NaN.
    return bool((tensor - tensor == 0).all())


def require_finite(
    tensors: "Mapping[str, Tensor | NDArray[Any]]", location: object, hint: str
) -> None:
    """Check that tensors are finite.

    Args:
        location: where they are, or are to be written; the message begins with it.
    """
    for name, tensor in tensors.items():
        if not is_finite(tensor):
            raise VerificationError(f"{location}: {name} holds NaN or infinity", hint)
