"""Fixtures of this folder."""

from tests.checkpoints import hub_checkpoint

__all__ = ["hub_checkpoint"]
