"""Optimizers that do not import ``torch._dynamo``, which takes a second or more of each start."""

import inspect
from typing import TypeVar

import torch
from torch.optim import Optimizer

T = TypeVar("T", bound=Optimizer)
METHODS = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def eager(optimizer: type[T]) -> type[T]:
    """Return a class with its methods without torch's wrappers for ``torch.compile``."""
    # They exclude an optimizer from a graph that is being compiled, and import the compiler to do
    # so. Here only models are compiled.
    methods = {name: inspect.unwrap(getattr(optimizer, name)) for name in METHODS}
    step = torch.no_grad()(inspect.unwrap(optimizer.step))
    return type(optimizer.__name__, (optimizer,), {**methods, "step": step})
