"""Fixtures of the tests that need a CUDA device."""

from pathlib import Path

import pytest
import torch

from tests.training.conftest import shared_home, training_home

__all__ = ["shared_home", "training_home"]


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device of the tests: the first CUDA device, unless another one is asked for."""
    return torch.device(request.config.getoption("--cuda-device") or "cuda:0")


@pytest.fixture(autouse=True)
def exact_float32() -> None:
    """Multiply float32 matrices in float32: a CPU has no TF32."""
    torch.set_float32_matmul_precision("highest")
    assert Path(__file__).parent.name == "cuda"
