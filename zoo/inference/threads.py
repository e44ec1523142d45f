"""The number of CPU threads where none is given."""

import os

from zoo.io.limits import MAX_THREADS


def environment_threads() -> int | None:
    """Return the number in ``$OMP_NUM_THREADS``, which torch obeys and other runtimes do not."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list is for nesting
    if not first.isdecimal() or not 1 <= int(first) <= MAX_THREADS:
        return None
    return int(first)
