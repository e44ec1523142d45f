"""Disks that are full or cannot be written: which file, what remains, and what to do."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from zoo.errors import UsageError, ZooError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
UNWRITABLE = {*NO_ROOM, *_FORBIDDEN, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EFBIG}
NOTHING_LEFT = "nothing was left behind"
_PROBE_BYTES = 1 << 16


def remedy(error: OSError) -> str:
    """Return what to do about an error of writing; empty if its words say it."""
    if error.errno in NO_ROOM:
        return "make room, or write to another disk"
    if error.errno in _FORBIDDEN:
        return "write to another place"
    return ""


def unwritable(
    target: str | os.PathLike[str], error: OSError, remains: str = NOTHING_LEFT
) -> UsageError:
    """Return the error for an output that cannot be written."""
    hint = "; ".join(part for part in (remains, remedy(error)) if part)
    return UsageError(f"cannot write {os.fspath(target)}: {error.strerror}", hint)


@contextlib.contextmanager
def writing(target: Path, remains: str = NOTHING_LEFT) -> Iterator[None]:
    """Convert errors of writing next to, or to, a target to a ``UsageError`` that names it.

    Args:
        target: file or directory that the user knows.
        remains: what is on the disk afterwards.
    """
    try:
        yield
    except OSError as error:
        raise unwritable(target, error, remains) from error
    except Exception as error:
        cause = cause_on_disk(error, target.parent)
        if cause is None:
            raise
        raise unwritable(target, cause, remains) from cause


def cause_on_disk(
    error: BaseException, folder: Path, *, is_only_folder: bool = True
) -> OSError | None:
    """Return the system's error that ended a block which writes into a folder, if one did.

    The writers of libraries report a full disk by exceptions of their own, and by an ``OSError``
    without a number. If their words do not say it, a small file is written into the folder: what
    prevents that is the cause.

    Args:
        error: what ended the block.
        folder: folder in which the block writes.
        is_only_folder: whether an error that names no file belongs to the folder; otherwise only if
            the folder cannot be written.
    """
    if isinstance(error, ZooError | KeyboardInterrupt | SystemExit | GeneratorExit):
        return None
    cause = _system_error(error)
    if cause is None:
        return _probe(folder)
    if cause.errno not in UNWRITABLE:
        return None
    if isinstance(cause.filename, str | os.PathLike):
        return cause if Path(cause.filename).is_relative_to(folder) else None
    return cause if is_only_folder else _probe(folder)


def close_quietly(file: IO[bytes]) -> None:
    """Close a file after an error; what its buffer holds may not fit on the disk."""
    with contextlib.suppress(OSError, ValueError):
        file.close()


def _system_error(error: BaseException) -> OSError | None:
    """Return the system's error that an exception is, or that a library's words name."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    words = str(error)
    for code in sorted(NO_ROOM | {errno.EROFS, errno.EFBIG}):
        if os.strerror(code) in words:
            return OSError(code, os.strerror(code))
    return None


def _probe(folder: Path) -> OSError | None:
    """Return the error that keeps a small file from being written into a folder."""
    path = folder / f".{os.urandom(4).hex()}.zoo-probe"
    try:
        with path.open("xb", buffering=0) as file:
            file.write(bytes(_PROBE_BYTES // 2))
            file.write(bytes(_PROBE_BYTES // 2))  # a first write may be cut short
            os.fsync(file.fileno())
    except OSError as error:
        return error if error.errno in UNWRITABLE - {errno.ENOTDIR} else None
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
    return None
