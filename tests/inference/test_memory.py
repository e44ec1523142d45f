"""The allocator of the C library during inference."""

import platform

from zoo.inference.memory import keep_freed_memory


def test_glibc_accepts_the_thresholds() -> None:
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
