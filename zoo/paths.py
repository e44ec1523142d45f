"""Where things are kept and for how long, and which file names are safe to follow."""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from zoo.errors import VerificationError

KEPT = 16  # directories in a folder of what can be made again


def home() -> Path:
    """Return ``$ZOO_HOME``, by default ``~/.local/share/zoo``."""
    return Path(os.environ.get("ZOO_HOME") or "~/.local/share/zoo").expanduser()


def store() -> Path:
    """Return the folder of converted models, one directory a name."""
    return home() / "models"


def keep(directory: Path) -> None:
    """Note that something that can be made again is used; remove what was not for longest.

    The ``KEPT`` directories beside each other that were used last stay.
    """
    with contextlib.suppress(OSError):  # a home that others share may be for reading alone
        now = time.time_ns()  # finer than the clock of the file system
        os.utime(directory, ns=(now, now))
        beside = [path for path in directory.parent.iterdir() if path.is_dir()]
        known = [path for path in beside if not path.name.startswith(".")]  # the rest is unfinished
        known.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        _remove(known[KEPT:])


def _remove(directories: Sequence[Path]) -> None:
    """Remove directories, each at once in the eyes of other processes."""
    import tempfile

    for path in directories:
        with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as bin_:
            path.rename(Path(bin_, path.name))


def inside(directory: Path, name: str, mentioned_in: str) -> Path:
    """Join a file name taken from a downloaded file to its directory.

    Raises:
        VerificationError: the name leads out of the directory.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not name:
        raise VerificationError(
            f"{mentioned_in} names {name!r}, which is outside of its directory",
            "do not use this checkpoint",
        )
    return directory / path
