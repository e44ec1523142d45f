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
    created: list[Path] = []
    staging: Path | None = None
    published = False
    try:
        with _writing(target):
            staging = _make_staging(target, created)
        yield staging
        with _writing(target):
            _sync_tree(staging)
            check_target(target, force=force)
            _swap(staging, target)
        published = True
        with contextlib.suppress(OSError):  # a parent may be writable and not readable
            _sync(target.parent)
    except OSError as error:
        if error.errno in UNWRITABLE and _concerns(error, staging):
            raise _unwritable(target, error) from error
        raise
    finally:
        if not published:
            _remove(staging, created)


def sweep(target: Path) -> None:
    """Remove what was left by processes that were killed while they published a directory.

    Args:
        target: the directory, whose name may be a pattern. No other process may be publishing it.
    """
    for path in target.parent.glob(f".{target.name}.????????"):
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Every failure in the block is one to write the target."""
    try:
        yield
    except OSError as error:
        raise _unwritable(target, error) from error


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


def _make_staging(target: Path, created: list[Path]) -> Path:
    """Make the temporary sibling. Parents made for it go to ``created``, innermost first."""
    for parent in reversed([p for p in (target.parent, *target.parent.parents) if not p.exists()]):
        created.insert(0, parent)
        parent.mkdir(exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    staging.chmod(0o777 & ~_umask())
    return staging


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


def _swap(staging: Path, target: Path) -> None:
    """Rename into place. A directory that is replaced is kept until the new one stands.

    What happened is read off the disk and not remembered, so that an interrupt between any two
    steps puts the old one back.
    """
    if not target.exists():
        staging.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    kept = old / target.name
    try:
        target.rename(kept)
        staging.rename(target)
    finally:
        if kept.exists() and not target.exists():
            kept.rename(target)
        shutil.rmtree(old, ignore_errors=True)


def _remove(staging: Path | None, created: list[Path]) -> None:
    if staging is not None:
        shutil.rmtree(staging, ignore_errors=True)
    for parent in created:
        with contextlib.suppress(OSError):
            parent.rmdir()


def _concerns(error: OSError, staging: Path | None) -> bool:
    """Whether an error in the block is about what it writes, and not about a file it reads."""
    if staging is None or not isinstance(error.filename, str | os.PathLike):
        return True
    return Path(error.filename).is_relative_to(staging)


def _unwritable(target: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write {target}: {error.strerror}", "nothing was left behind")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
