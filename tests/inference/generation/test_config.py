"""Validation of generation settings, before any allocation."""

from typing import Any

import pytest

from zoo.errors import UsageError
from zoo.inference.generation.config import GenerationConfig


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": 10**12},
        {"num_beams": 10**9},
        {"num_beams": 1000, "max_new_tokens": 100_000},
        {"length_penalty": float("nan"), "num_beams": 2},
        {"temperature": float("nan")},
        {"top_p": float("nan")},
        {"seed": 1 << 63},
    ],
    ids=str,
)
def test_absurd_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        GenerationConfig(**options)
