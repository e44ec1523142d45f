"""Temporary siblings of files and directories that are being written, and removal of stale ones.

What is written lies beside its place as ``.NAME.zoo-XXXXXXXX`` until it is renamed. The process
that writes it holds a lock on ``.NAME.zoo-XXXXXXXX.lock``, which the system releases when the
process ends, however it ends: a process number in its place would be used again by another one.
``fcntl.flock`` is called directly, since a lock file is removed here while it is held, and since
`filelock` falls back on process numbers where a file system has no locks.
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

_STAGED = re.compile(r"(\..*\.zoo-[0-9a-f]{8})(\.lock|\.old)?", re.DOTALL)
_NAME_LENGTH = 50  # characters of the target's name; four bytes each leave room for the rest


@contextlib.contextmanager
def staged_path(target: Path) -> Iterator[Path]:
    """Yields an unused path beside ``target``, and removes what is left there in the end.

    The path counts as in use until the block ends, so that ``remove_stale_staging`` of another
    process leaves it alone.

    Raises:
        OSError: the directory of ``target`` cannot be written.
    """
    path = target.with_name(f".{target.name[:_NAME_LENGTH]}.zoo-{secrets.token_hex(4)}")
    handle: int | None = None
    try:
        handle = _lock(_lock_file(path), wait=True)
        yield path
    finally:
        try:
            _remove_group(path)
        finally:  # an interrupt of the removal must not keep the lock
            if handle is not None:
                os.close(handle)


def replaced_path(staging: Path, target: Path) -> Path:
    """Returns the path for a directory that is moved out of the way of its replacement."""
    return Path(f"{staging}.old", target.name)


def discard(path: Path) -> None:
    """Removes a directory: at once in the eyes of other processes, then file by file."""
    with staged_path(path) as staging:
        path.rename(staging)


def remove_stale_staging(directory: Path) -> None:
    """Removes what processes that no longer live left in a directory while they wrote there.

    A directory that was moved out of the way of a replacement that never came is moved back.
    Nothing is removed where the file system has no locks, since no one can tell whose it is.
    """
    try:
        names = os.listdir(directory)
    except OSError:  # it does not exist, or may not be read
        return
    matches = (_STAGED.fullmatch(name) for name in names)
    for stem in sorted({match[1] for match in matches if match}):
        with contextlib.suppress(OSError):
            _remove_stale(directory / stem)


def _remove_stale(path: Path) -> None:
    handle = _lock(_lock_file(path), wait=False)
    if handle is None:
        return
    try:
        _move_back(path)
        _remove_group(path)
    finally:
        os.close(handle)


def _move_back(staging: Path) -> None:
    """Restores a directory whose replacement was interrupted between two renames."""
    parent = replaced_path(staging, staging).parent
    for replaced in parent.iterdir() if _is_directory(parent) else ():
        target = staging.with_name(replaced.name)
        if not os.path.lexists(target):
            replaced.rename(target)


def _remove_group(staging: Path) -> None:
    """Removes a temporary path and what belongs to it; the lock file last, for it is the claim."""
    for path in (staging, replaced_path(staging, staging).parent, _lock_file(staging)):
        if _is_directory(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _lock_file(staging: Path) -> Path:
    return Path(f"{staging}.lock")


def _lock(path: Path, *, wait: bool) -> int | None:
    """Opens and locks a file, and returns its handle.

    Returns:
        The handle; ``None`` if ``wait`` is false and another process may hold the lock.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            locked = _flock(handle, wait=wait)
            if not locked and not wait:
                os.close(handle)
                return None
            if not locked or _is_at(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # removed by another process between opening and locking


def _flock(handle: int, *, wait: bool) -> bool:
    """Locks an open file; returns whether that was possible."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Returns whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False
