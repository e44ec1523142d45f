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
    """Read, change and replace a record while its directory is locked.

    Args:
        path: file of the record.
        read: function that reads and checks the file.
        change: function that returns the new record.
        encode: function that returns the content of the file.

    Returns:
        the new record. The file is not written if it is equal to the old one.

    Raises:
        UsageError: the file is a link.
        OSError: the file cannot be written.
    """
    with directory_lock(path.parent):
        if path.is_symlink():
            raise UsageError(f"{path} is a link", "replace it by the file that it points to")
        before = read(path)
        after = change(before)
        if after != before:
            atomic_write(path, encode(after))
    return after
