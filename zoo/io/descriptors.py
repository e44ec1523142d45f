"""File descriptors: flags, locks and reads that not every operating system has."""

import errno
import os

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

# Zero where a system lacks a flag: on Windows, descriptors are not inherited, and there are no
# terminals, pipes or links among files in the sense of these flags.
CLOEXEC = getattr(os, "O_CLOEXEC", 0)
DIRECTORY = getattr(os, "O_DIRECTORY", 0)
NOCTTY = getattr(os, "O_NOCTTY", 0)
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
NONBLOCK = getattr(os, "O_NONBLOCK", 0)
BINARY = getattr(os, "O_BINARY", 0)  # Windows would translate line ends

_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}


class LocksUnavailableError(OSError):
    """The file system or the operating system has no locks of open files."""


def lock_descriptor(descriptor: int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock an open file or directory; the system unlocks it when it is closed.

    Raises:
        BlockingIOError: ``wait`` is ``False`` and another process holds the lock.
        LocksUnavailableError: there are no locks here, as on some network file systems.
        OSError: the lock failed for another reason.
    """
    if fcntl is None:
        raise LocksUnavailableError(errno.ENOTSUP, "this system has no locks of open files")
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if not wait:
        operation |= fcntl.LOCK_NB
    try:
        fcntl.flock(descriptor, operation)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise LocksUnavailableError(error.errno, error.strerror) from error
        raise


def unlock_descriptor(descriptor: int) -> None:
    """Unlock an open file whose descriptor is still in use elsewhere, as by a memory map."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def read_at(descriptor: int, buffer: memoryview | bytearray, offset: int) -> int:
    """Read bytes of an open file from an offset into a buffer; return their number."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    content = os.read(descriptor, len(buffer))
    buffer[: len(content)] = content
    return len(content)
