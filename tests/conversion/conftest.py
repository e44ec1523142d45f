"""Fixtures of this package."""

from tests.checkpoints import hub_checkpoint

__all__ = ["hub_checkpoint"]
