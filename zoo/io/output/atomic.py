"""Atomic writing of directories and files: other processes see the complete result or none."""

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from zoo.errors import ZooError
from zoo.io.local import require_local
from zoo.io.output.full_disks import cause_on_disk, unwritable, writing
from zoo.io.output.overwrite import check_target
from zoo.io.output.staging import (
    parent_directories,
    remove_stale_staging,
    replaced_path,
    staged_path,
)

# of <fcntl.h> and <linux/fs.h>
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextlib.contextmanager
def atomic_directory(
    target: Path,
    *,
    force: bool = False,
    sources: Iterable[Path] = (),
    managed: bool = False,
    in_run: bool = False,
) -> Iterator[Path]:
    """Yield a staging directory that is renamed to ``target`` if the block succeeds."""
    require_local(target, "output")
    target = Path(os.path.abspath(target))
    check = partial(
        check_target, target, force=force, sources=list(sources), managed=managed, in_run=in_run
    )
    check()
    with contextlib.ExitStack() as stack:
        with writing(target):
            stack.enter_context(parent_directories(target))
            with contextlib.suppress(FileNotFoundError):
                os.lstat(target)  # raises an error if the name is too long
            staging = stack.enter_context(staged_path(target))
            staging.mkdir()
        with _naming(target, staging):
            yield staging
        with writing(target):
            _sync_tree(staging)
            check()
            try:
                if force:
                    _replace(staging, target)
                else:
                    staging.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                check()  # Another process wrote the target since the last check.
                _replace(staging, target)
        with contextlib.suppress(OSError):  # a parent may be writable but not readable
            _sync(target.parent)


@contextlib.contextmanager
def _naming(target: Path, staging: Path) -> Iterator[None]:
    """Name the target, and not its staging directory, in errors of a block that writes there."""
    try:
        yield
    except ZooError as error:
        error.what = error.what.replace(str(staging), str(target))
        raise
    except BaseException as error:
        # Without a cause in the staging directory, the error concerns another file, or is a bug.
        cause = cause_on_disk(error, staging)
        if cause is None:
            raise
        raise unwritable(target, cause) from cause


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file through a temporary sibling and a rename; create its directory if needed."""
    require_local(path, "output")
    try:
        remove_stale_staging(path.parent)
        with parent_directories(path), staged_path(path) as staging:
            with staging.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(staging, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _sync_tree(root: Path) -> None:
    """Write all files to the disk, with the mode of the user's umask."""
    # Some libraries write files that only their owner can read
    mode = root.stat().st_mode & 0o666  # of a directory that was made with the umask
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            if not path.is_symlink():
                path.chmod(mode)
                _sync(path)
        _sync(Path(folder))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _replace(staging: Path, target: Path) -> None:
    """Rename the staging directory to the target; a replaced directory takes its place."""
    # Where the system cannot exchange the two, the old directory is moved aside first. The state is
    # determined from the disk, so that an interrupt between any two steps is undone; if the process
    # was killed, ``remove_stale_staging`` undoes it
    if not target.exists():
        staging.rename(target)
    elif not _exchange(staging, target):
        replaced = replaced_path(staging, target)
        replaced.parent.mkdir()
        try:
            target.rename(replaced)
            staging.rename(target)
        finally:
            if replaced.exists() and not target.exists():
                replaced.rename(target)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two paths atomically; return ``False`` where the system cannot (Linux can)."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    ends = (_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second))
    if rename(*ends, _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(second))
