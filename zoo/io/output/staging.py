"""Staging paths of files and directories that are being written, and removal of stale ones."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from zoo.io.descriptors import CLOEXEC, NOFOLLOW, LocksUnavailableError, lock_descriptor

_STAGED = re.compile(r"(\..*\.zoo-[0-9a-f]{8})(\.lock|\.old)?", re.DOTALL)
_NAME_LENGTH = 50  # characters of the target's name, of up to four bytes each


@contextlib.contextmanager
def staged_path(target: Path) -> Iterator[Path]:
    """Yield an unused staging path next to ``target``, and remove it when the block ends."""
    # Output is written to ``.NAME.zoo-XXXXXXXX`` next to its target and renamed at the end. The
    # writing process holds a lock on ``.NAME.zoo-XXXXXXXX.lock``, which the system releases when
    # the process ends for any reason. (A process number instead of a lock could be reused by
    # another process.) ``flock`` is called directly, since a lock file is removed here while
    # it is held, and since `filelock` falls back on process numbers where a file system has no
    # locks.
    #
    # The path is locked until the block ends, so that ``remove_stale_staging`` of another process
    # skips it
    path = target.with_name(f".{target.name[:_NAME_LENGTH]}.zoo-{os.urandom(4).hex()}")
    handle: int | None = None
    try:
        handle = _lock(_lock_file(path), wait=True)
        yield path
    finally:
        try:
            _remove_group(path)
        except KeyboardInterrupt:  # a signal during the removal must not leave half of it
            _remove_group(path)
            raise
        finally:
            if handle is not None:
                os.close(handle)


@contextlib.contextmanager
def parent_directories(target: Path) -> Iterator[None]:
    """Create the missing parents of a target, and remove them again if the block fails."""
    missing = [path for path in target.absolute().parents if not path.exists()]
    try:
        for parent in reversed(missing):
            parent.mkdir(exist_ok=True)
        yield
    except BaseException:
        for parent in missing:  # the innermost first
            with contextlib.suppress(OSError):  # another process has written to it
                parent.rmdir()
        raise


def replaced_path(staging: Path, target: Path) -> Path:
    """Return the path to which a replaced directory is moved."""
    return Path(f"{staging}.old", target.name)


def is_staged(name: str) -> bool:
    """Return whether something is being written under a file name."""
    return _STAGED.fullmatch(name) is not None


def discard(path: Path) -> None:
    """Remove a directory: hide it by a rename first, then delete its files."""
    with staged_path(path) as staging:
        path.rename(staging)


def discard_unused(path: Path, record: str) -> None:
    """Remove a directory that holds nothing but a record; keep it if it holds anything else."""
    if os.listdir(path) == [record]:
        discard(path)


def remove_stale_staging(directory: Path) -> None:
    """Remove the staging paths of processes that have ended from a directory."""
    # A directory whose replacement was interrupted is moved back. Nothing is removed on a file
    # system without locks, where stale paths cannot be distinguished from those in use
    try:
        names = os.listdir(directory)
    except OSError:  # the directory does not exist or cannot be read
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
        # restore a directory whose replacement was interrupted between two renames
        parent = replaced_path(path, path).parent
        for replaced in parent.iterdir() if _is_directory(parent) else ():
            target = path.with_name(replaced.name)
            if not os.path.lexists(target):
                replaced.rename(target)
        _remove_group(path)
    finally:
        os.close(handle)


def _remove_group(staging: Path) -> None:
    """Remove a staging path and its siblings, the lock file last: it marks the path as used."""
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
    """Open and lock a file; return its descriptor."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC, 0o666)
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
    """Lock an open file; return ``False`` if that was not possible."""
    try:
        lock_descriptor(handle, wait=wait)
    except (BlockingIOError, LocksUnavailableError):
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Return ``True`` if an open file is still at its path."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False
