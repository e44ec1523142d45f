"""Where things are kept and for how long, and which file names are safe to follow."""

import contextlib
import os
import time
from pathlib import Path, PurePosixPath

from zoo.errors import VerificationError
from zoo.io.output.staging import discard, remove_stale_staging

KEPT = 16  # directories in a folder of what can be made again


def home() -> Path:
    """Return ``$ZOO_HOME``, by default ``~/.local/share/zoo``."""
    return Path(os.environ.get("ZOO_HOME") or "~/.local/share/zoo").expanduser()


def store() -> Path:
    """Return the folder of converted models, one directory a name."""
    return home() / "models"


def touch_and_evict(directory: Path) -> None:
    """Marks a directory that can be made again as used, and removes those unused for longest.

    The ``KEPT`` directories beside each other that were used last stay, this one among them.
    """
    with contextlib.suppress(OSError):  # a home that others share may be for reading alone
        paths = [path for path in directory.parent.iterdir() if path.is_dir()]
        times = {p: p.stat().st_mtime_ns for p in paths if not p.name.startswith(".")}
        # a clock that was set back must not make this the oldest
        now = max([time.time_ns(), *(used + 1 for used in times.values())])
        os.utime(directory, ns=(now, now))
        for path in sorted(times.keys() - {directory}, key=times.__getitem__)[: 1 - KEPT]:
            discard(path)
        remove_stale_staging(directory.parent)


def safe_join(directory: Path, name: str, mentioned_in: str) -> Path:
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
