"""Kernels that give the same result each time."""

import contextlib
import os
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def deterministic_algorithms(enabled: bool) -> Iterator[None]:
    """Use deterministic kernels on CUDA, where the faster ones add in an order that varies."""
    if not enabled:  # Setting it, even to the same value, imports the compiler.
        yield
        return
    # cuBLAS reads it when it is first used; see torch.use_deterministic_algorithms.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    was_enabled = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_enabled)
