"""Building modules without initializing parameters that are replaced afterwards."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class SkipInit(TorchFunctionMode):
    """Function mode that skips in-place functions on parameters, and so their initialization.

    In-place functions of torch have names that end in one underscore.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        target = args[0] if args else kwargs.get("tensor")
        name = getattr(func, "__name__", "")
        if isinstance(target, nn.Parameter) and name.endswith("_") and not name.endswith("__"):
            return target
        return func(*args, **kwargs)


@contextlib.contextmanager
def init_empty_weights() -> Iterator[None]:
    """Build modules on the device ``meta``: shapes without memory.

    The device alone would run each initialization by torch's decompositions in Python, which takes
    longer than drawing the numbers, and imports the compiler.
    """
    with torch.device("meta"), SkipInit():
        yield
