"""Errors of foreign parsers as errors of the file that they parse."""

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator

from zoo.errors import VerificationError, ZooError


@contextlib.contextmanager
def parsing(path: "str | os.PathLike[str]", what: str) -> Iterator[None]:
    """Turn whatever a foreign parser raises into a ``VerificationError`` that names the file.

    Wrap the call of the parser alone: an error in our own code inside the block would be taken
    for one of the file. Errors of the operating system pass, as do interrupts.

    Args:
        path: the file that is parsed.
        what: kind of the file, with its article: ``"a tokenizer"``.

    Raises:
        VerificationError: the parser raised something, a panic of Rust code included.
    """
    try:
        yield
    except (ZooError, OSError):
        raise
    except (Exception, RecursionError) as error:
        raise _unsound(path, what, error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pyo3 derives it from BaseException
            raise
        raise _unsound(path, what, error) from error


@contextlib.contextmanager
def rust_parsing(path: "str | os.PathLike[str]", what: str) -> Iterator[None]:
    """Do what ``parsing`` does, and keep what a panic writes off the terminal.

    A panic of Rust code writes to the file descriptor of standard error before it becomes an
    exception. What else is written there meanwhile appears when the block ends.
    """
    with parsing(path, what):
        _STANDARD_ERROR.hold()
        panicked = False
        try:
            yield
        except BaseException as error:
            panicked = type(error).__name__ == "PanicException"
            raise
        finally:
            _STANDARD_ERROR.release(drop=panicked)


class _HeldBack:
    """Standard error of the process, written to a file while any thread holds it back.

    Threads share the file: if each had its own, they would restore each other's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._drop = False
        self._terminal: int | None = None
        self._file = -1

    def hold(self) -> None:
        """Write to the file from now on."""
        with self._lock:
            self._holders += 1
            if self._holders > 1:
                return
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.flush()
            try:
                self._terminal = os.dup(2)
            except OSError:  # it is closed
                return
            self._file = os.memfd_create("stderr") if hasattr(os, "memfd_create") else _unnamed()
            os.dup2(self._file, 2)

    def release(self, *, drop: bool) -> None:
        """Write to the terminal again, unless another thread still holds it back.

        Args:
            drop: leave out what was written meanwhile.
        """
        with self._lock:
            self._holders -= 1
            self._drop |= drop
            if self._holders or self._terminal is None:
                return
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.flush()
            os.dup2(self._terminal, 2)
            os.close(self._terminal)
            with os.fdopen(self._file, "rb") as file:
                file.seek(0)
                if not self._drop and (written := file.read()):
                    with contextlib.suppress(OSError):
                        os.write(2, written)
            self._terminal, self._drop = None, False


def _unnamed() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


_STANDARD_ERROR = _HeldBack()


def _unsound(path: "str | os.PathLike[str]", what: str, error: BaseException) -> VerificationError:
    message = " ".join(str(error).split())[:300]
    detail = f": {message}" if message else f": {type(error).__name__}"
    return VerificationError(f"{path}: not {what} that can be read{detail}")
