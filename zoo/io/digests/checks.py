"""Results of checks on files."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from zoo.errors import ZooError


@dataclass(frozen=True)
class Check:
    """Result of one check."""

    name: str
    outcome: Literal["ok", "failed", "not run"]
    detail: str  # one line


def run_check(name: str, check: Callable[[], str]) -> Check:
    """Run a check. Its return value becomes the detail; a ``ZooError`` is a failure."""
    try:
        return Check(name, "ok", check())
    except ZooError as error:
        return Check(name, "failed", str(error))
