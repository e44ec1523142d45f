"""The number of CPU cores."""

import os


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use, where the platform tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
