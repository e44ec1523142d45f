"""File systems for tests."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def fill(disk: Path, left: int) -> None:
    """Fill a disk except for some bytes."""
    free = os.statvfs(disk)
    with (disk / "filler").open("wb") as file:
        file.write(bytes(free.f_bavail * free.f_frsize - left))


def read_only(disk: Path) -> None:
    """Make a disk read-only."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
