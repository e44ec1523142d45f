"""Records that are changed in place, by several processes at once."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from zoo.errors import UsageError
from zoo.io.locks import directory_lock
from zoo.io.output.atomic import atomic_write

Record = TypeVar("Record")


def update_record(
    path: Path,
    read: Callable[[Path], Record],
    change: Callable[[Record], Record],
    encode: Callable[[Record], bytes],
) -> Record:
    """Read, change and replace a record while its directory is locked."""
    with directory_lock(path.parent):
        if path.is_symlink():
            raise UsageError(f"{path} is a link", "replace it by the file that it points to")
        before = read(path)
        after = change(before)
        if after != before:
            atomic_write(path, encode(after))
    return after
