"""Fixtures of this package."""

from tests.checkpoints import hub_checkpoint
from tests.disks import small_disk

__all__ = ["hub_checkpoint", "small_disk"]
