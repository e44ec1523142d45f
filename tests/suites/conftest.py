"""Checkpoints of random weights to evaluate on suites."""

from tests.checkpoints import hub_checkpoint

__all__ = ["hub_checkpoint"]
