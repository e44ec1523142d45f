"""Search for the first NaN or infinity among weights, activations and gradients."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from zoo.training.distributed.parallelize import full_tensor


def find_nonfinite(module: nn.Module, run: Callable[[], Any]) -> str:
    """Return the name of the first weight, layer output or gradient that is not finite."""
    for name, parameter in module.named_parameters():
        if not _is_finite(parameter):
            return f"the weights {name}"
    nonfinite_outputs: list[str] = []

    def check_output(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if not nonfinite_outputs and not _is_finite(output):
                nonfinite_outputs.append(f"the output of {name}")

        return hook

    submodules = [(name, child) for name, child in module.named_modules() if name]
    handles = [child.register_forward_hook(check_output(name)) for name, child in submodules]
    try:
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    if nonfinite_outputs:
        return nonfinite_outputs[0]
    for name, parameter in module.named_parameters():
        if parameter.grad is not None and not _is_finite(parameter.grad):
            return f"the gradient of {name}"
    return "the loss"


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether all values of all tensors are finite; tensors may be DTensors."""
    return all(map(_is_finite, tensors))


def _is_finite(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not value.is_floating_point() or bool(full_tensor(value.isfinite().all()))
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return True
