"""Publishing a directory: a reader sees all of it or none, and a failure leaves no trace."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from zoo.errors import UsageError

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


@contextlib.contextmanager
def publishing(target: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary sibling of ``target`` that replaces it if the block succeeds.

    Args:
        target: the directory to make.
        force: replace an existing directory. Without it an existing target is refused, before
            any work is done.

    Raises:
        UsageError: the target exists, or cannot be written: no space, no permission.
    """
    target = Path(os.path.abspath(target))
    check_target(target, force=force)
    created = _make_parents(target.parent)
    staging: Path | None = None
    published = False
    try:
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        staging.chmod(0o777 & ~_umask())
        yield staging
        _sync_tree(staging)
        _swap(staging, target)
        published = True
    except OSError as error:
        ours = error.filename is None or Path(error.filename).is_relative_to(target.parent)
        if error.errno in UNWRITABLE and ours:
            raise _unwritable(target, error) from error
        raise
    finally:
        if not published:
            _remove(staging, created)


def check_target(target: Path, *, force: bool) -> None:
    """Refuse a target that must not be replaced.

    Raises:
        UsageError: it exists and ``force`` is not given, or it is no directory.
    """
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_dir():
        raise UsageError(f"{target} exists and is not a directory", "give another -o")
    if not force:
        raise UsageError(f"{target} exists", "give --force to replace it, or another -o")


def _make_parents(parent: Path) -> list[Path]:
    """Create missing parents; return them, innermost first, for a failure to remove."""
    missing = [p for p in (parent, *parent.parents) if not p.exists()]
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(parent, error) from error
    return missing


def _sync_tree(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for path in (*(Path(folder, name) for name in names), Path(folder)):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _swap(staging: Path, target: Path) -> None:
    """Rename into place. A directory that is replaced is kept until the new one stands."""
    old = None
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        target.rename(old / target.name)
    try:
        staging.rename(target)
    except OSError:
        if old:
            (old / target.name).rename(target)
        raise
    finally:
        if old:
            shutil.rmtree(old, ignore_errors=True)


def _remove(staging: Path | None, created: list[Path]) -> None:
    if staging is not None:
        shutil.rmtree(staging, ignore_errors=True)
    for parent in created:
        with contextlib.suppress(OSError):
            parent.rmdir()


def _unwritable(target: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write {target}: {error.strerror}", "nothing was left behind")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
