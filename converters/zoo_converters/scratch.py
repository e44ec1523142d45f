"""Unnamed temporary files, which the operating system removes when the process ends."""

import os
import tempfile
from pathlib import Path

from zoo.errors import UsageError
from zoo.io.tensors.file_array import DataFile, FileArray


class ScratchFile:
    """Temporary file that is written once and then read."""

    def __init__(self, size: int) -> None:
        folder = tempfile.gettempdir()
        try:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115 (close() closes it)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self.file.fileno(), 0, max(size, 1))
        except OSError as error:
            raise UsageError(
                f"{folder} has no room for a temporary file of {size:,} bytes: {error.strerror}",
                "set TMPDIR to another directory",
            ) from error
        descriptors = Path("/proc/self/fd")
        parent = descriptors if descriptors.is_dir() else Path("/dev/fd")
        self._data = DataFile(parent / str(self.file.fileno()), size)

    def lazy(self, dtype: str, shape: tuple[int, ...], offset: int = 0) -> FileArray:
        """Return an array in the file that is read on use."""
        return FileArray.stored(self._data, dtype, shape, offset)

    def close(self) -> None:
        """Close the file, which frees its space."""
        self.file.close()
