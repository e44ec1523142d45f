"""Where numbers stopped being numbers."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from zoo.training.distributed.parallelize import full_tensor


def find_nonfinite(module: nn.Module, run: Callable[[], Any]) -> str:
    """Name the first weight or layer with a value that is not finite.

    Args:
        module: what is trained.
        run: computes the same batch again, forwards.
    """
    for name, parameter in module.named_parameters():
        if not _finite(parameter):
            return f"the weights {name}"
    found: list[str] = []

    def look(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, given: Any, returned: Any) -> None:
            if not found and not _finite(returned):
                found.append(f"the output of {name}")

        return hook

    named = [(name, each) for name, each in module.named_modules() if name]
    handles = [each.register_forward_hook(look(name)) for name, each in named]
    try:
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    if found:
        return found[0]
    for name, parameter in module.named_parameters():
        if parameter.grad is not None and not _finite(parameter.grad):
            return f"the gradient of {name}"
    return "the loss"


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether all values are finite, also of tensors that are split over processes."""
    return all(map(_finite, tensors))


def _finite(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not value.is_floating_point() or bool(full_tensor(value.isfinite().all()))
    parts = value.values() if isinstance(value, dict) else value
    return not isinstance(value, dict | list | tuple) or all(map(_finite, parts))
