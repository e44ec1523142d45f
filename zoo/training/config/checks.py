"""Checks of values that the configurations of all kinds of runs share."""

from collections.abc import Mapping
from typing import Any

from zoo.io.limits import MAX_NEW_VOCABULARY, MAX_RUN_NUMBER

# Field -> least and largest value.
_RANGES = {
    "vocab_size": (1, MAX_NEW_VOCABULARY),
    "logging_steps": (1, MAX_RUN_NUMBER),
    "save_total_limit": (1, MAX_RUN_NUMBER),
    "seed": (-(2**63), 2**64 - 1),
}


def check_run_numbers(config: Any, ranges: Mapping[str, tuple[int, int]]) -> None:
    """Check the numbers of a configuration."""
    for name, (least, most) in {**_RANGES, **ranges}.items():
        value = getattr(config, name)
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name} is {value}, and {least:,} to {most:,} is accepted")
    if config.ema_decay is not None and not 0 <= config.ema_decay < 1:
        raise ValueError(f"ema_decay is {config.ema_decay}, which is not in [0, 1)")
