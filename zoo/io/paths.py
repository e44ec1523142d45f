"""Directories of the program, cache eviction, and safe joining of untrusted file names."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from zoo.errors import UsageError, VerificationError, with_places
from zoo.io.local import require_local
from zoo.io.urls import is_remote


def home() -> Path:
    """Return the data directory ``$ZOO_HOME``, by default ``~/.local/share/zoo``."""
    path = os.environ.get("ZOO_HOME") or "~/.local/share/zoo"
    require_local(path, "output")
    return Path(path).expanduser()


def store() -> Path:
    """Return the directory of converted models, one subdirectory for each name."""
    return home() / "models"


def as_paths(values: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return one path or URL, or several, as a list of text."""
    several = [values] if isinstance(values, str | os.PathLike) else values
    texts = [os.fspath(value) for value in several]
    for text in texts:
        if not is_remote(text):
            require_local(text, "file")
    return texts


def directory_bytes(directory: Path) -> int:
    """Return the size of all files of a directory; links are not followed."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # removed meanwhile
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def readable_name(path: str | Path) -> str:
    """Return a file name as UTF-8, with other bytes escaped as ``\\xff``, for a record.

    The copy of a remote file has the name of its URL.
    """
    return with_places(os.fsencode(path).decode("utf-8", "backslashreplace"))


def check_unicode(path: str | Path, what: str) -> None:
    """Check that a path is UTF-8, as libraries and records of runs take it."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what}: the name {str(path)!r} is not UTF-8", "rename it") from error


def safe_join(directory: Path, name: str, mentioned_in: str) -> Path:
    """Join an untrusted relative file name to a directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or not name:
        raise VerificationError(
            f"{mentioned_in} names {name!r}, which is outside of its directory",
            "do not use this checkpoint",
        )
    return directory / path
