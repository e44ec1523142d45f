"""Results of checks on what is on disk."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from zoo.errors import ZooError


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        name: name of the check.
        outcome: ``ok``, ``failed``, or ``not run``.
        detail: the finding, in one line.
    """

    name: str
    outcome: Literal["ok", "failed", "not run"]
    detail: str


def run_check(name: str, check: Callable[[], str]) -> Check:
    """Run a check; its return value is the detail, and a ``ZooError`` is a failure."""
    try:
        return Check(name, "ok", check())
    except ZooError as error:
        return Check(name, "failed", str(error))
