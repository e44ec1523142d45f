"""Directories and files that a reader sees whole or not at all; a failure leaves no trace."""

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from zoo.errors import UsageError
from zoo.io.output.overwrite import check_target
from zoo.io.output.staging import remove_stale_staging, replaced_path, staged_path

UNWRITABLE = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.EFBIG,
}
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of <fcntl.h> and <linux/fs.h>


@contextlib.contextmanager
def atomic_directory(
    target: Path, *, force: bool = False, sources: Iterable[Path] = (), managed: bool = False
) -> Iterator[Path]:
    """Yields a temporary directory that becomes ``target`` if the block succeeds.

    Args:
        target: the directory to make.
        force: replace a directory that exists; see ``check_target``, also for what follows.
        sources: paths that are read to make it.
        managed: replace whatever is there.

    Raises:
        UsageError: the target must not be replaced, which is found out before any work is done,
            or it cannot be written: no space, no permission.
    """
    target, sources = Path(os.path.abspath(target)), list(sources)
    check_target(target, force=force, sources=sources, managed=managed)
    created: list[Path] = []
    staging: Path | None = None
    published = False
    try:
        with contextlib.ExitStack() as stack:
            with _writing(target):
                _make_parents(target, created)
                with contextlib.suppress(FileNotFoundError):
                    os.lstat(target)  # a name that is too long fails here
                staging = stack.enter_context(staged_path(target))
                staging.mkdir()
            yield staging
            with _writing(target):
                _sync_tree(staging)
                check_target(target, force=force, sources=sources, managed=managed)
                _replace(staging, target)
            published = True
            with contextlib.suppress(OSError):  # a parent may be writable and not readable
                _sync(target.parent)
    except OSError as error:
        if error.errno in UNWRITABLE and _concerns(error, staging):
            raise _unwritable(target, error) from error
        raise
    finally:
        if not published:
            _remove_parents(created)


def atomic_write(path: Path, content: bytes) -> None:
    """Writes a file through a temporary sibling and a rename, making its directory if needed.

    Raises:
        OSError: it cannot be written; the error names ``path``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_staging(path.parent)
    try:
        with staged_path(path) as staging:
            with staging.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(staging, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Turns every failure of the system into one to write the target."""
    try:
        yield
    except OSError as error:
        raise _unwritable(target, error) from error


def _make_parents(target: Path, created: list[Path]) -> None:
    """Makes the directories above the target, and adds them to ``created``, innermost first."""
    for parent in reversed([p for p in (target.parent, *target.parent.parents) if not p.exists()]):
        created.insert(0, parent)
        parent.mkdir(exist_ok=True)


def _remove_parents(created: list[Path]) -> None:
    for parent in created:
        with contextlib.suppress(OSError):  # somebody else uses it by now
            parent.rmdir()


def _sync_tree(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for path in (*(Path(folder, name) for name in names), Path(folder)):
            _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _replace(staging: Path, target: Path) -> None:
    """Renames into place. A directory that is replaced ends at the temporary path.

    Where the two cannot change places in one step, the old one is moved aside. What happened is
    read off the disk and not remembered, so that an interrupt between any two steps puts it back;
    after the end of the process, ``remove_stale_staging`` does.
    """
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


def _exchange(one: Path, other: Path) -> bool:
    """Lets two paths change places in one step; returns whether the system can (Linux can)."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    ends = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
    if rename(*ends, _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(other))


def _concerns(error: OSError, staging: Path | None) -> bool:
    """Returns whether an error in the block is about a file it writes, and not one it reads."""
    if staging is None or not isinstance(error.filename, str | os.PathLike):
        return True
    return Path(error.filename).is_relative_to(staging)


def _unwritable(target: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write {target}: {error.strerror}", "nothing was left behind")
