"""Fixtures of this folder."""

from tests.disks import small_disk

__all__ = ["small_disk"]
