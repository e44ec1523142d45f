"""Where things are kept, and which file names are safe to follow."""

import os
from pathlib import Path, PurePosixPath

from zoo.errors import VerificationError


def home() -> Path:
    """Return ``$ZOO_HOME``, by default ``~/.local/share/zoo``."""
    return Path(os.environ.get("ZOO_HOME") or "~/.local/share/zoo").expanduser()


def store() -> Path:
    """Return the folder of converted models, one directory a name."""
    return home() / "models"


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
