"""The allocator of the C library, for inference on CPUs."""

import ctypes
import functools
import sys

# names of glibc's mallopt
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
KEPT = 1 << 30  # bytes at the end of the heap that are not returned to the system
LARGEST = 1 << 25  # bytes of a block that is allocated on the heap, the most that glibc accepts


@functools.cache
def keep_freed_memory() -> bool:
    """Let the process keep memory that it frees, and return whether the C library supports it.

    The buffers between the layers of a model are freed and allocated again in each batch. With the
    defaults of glibc, their pages are returned to the system and zeroed anew, which takes a sixth
    of the CPU time of a small model with 8-bit weights.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST) and mallopt(M_TRIM_THRESHOLD, KEPT))
