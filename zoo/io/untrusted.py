"""Conversion of a library's parser errors to errors that name the file."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

from zoo.errors import VerificationError, ZooError
from zoo.io.scratch import memory_file


@contextlib.contextmanager
def parsing(path: "str | os.PathLike[str]", kind: str) -> Iterator[None]:
    """Convert exceptions of a library's parser to a ``VerificationError`` that names the file."""
    # Wrap only the call of the parser: a bug of the caller inside the block would be reported as an
    # error of the file. Errors of the operating system and interrupts pass unchanged
    try:
        yield
    except (ZooError, OSError):
        raise
    except (Exception, RecursionError) as error:
        raise _unsound(path, kind, error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pyo3 derives it from BaseException
            raise
        raise _unsound(path, kind, error) from error


@contextlib.contextmanager
def rust_parsing(path: "str | os.PathLike[str]", kind: str) -> Iterator[None]:
    """Convert exceptions like ``parsing``, and suppress the message of a panic of Rust code."""
    # The message is written to the file descriptor of standard error before the exception is
    # raised. Other output to standard error appears when the block ends
    with parsing(path, kind):
        _STANDARD_ERROR.hold()
        panicked = False
        try:
            yield
        except BaseException as error:
            panicked = type(error).__name__ == "PanicException"
            raise
        finally:
            _STANDARD_ERROR.release(drop=panicked)


class _StandardErrorRedirect:
    """Redirection of the process's standard error to a file, counted over threads."""

    # Threads share one file, since the descriptor belongs to the process. A text that is tokenized
    # by itself takes less time than a new file, so that it is kept.

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._drop = False
        self._terminal: int | None = None
        self._file = -1
        self._process = -1

    def hold(self) -> None:
        """Start the redirection."""
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
            if self._process != os.getpid():  # a child has its parent's position in the file
                self._file = _unnamed_file()
                self._process = os.getpid()
            os.dup2(self._file, 2)

    def release(self, *, drop: bool) -> None:
        """End the redirection, unless another thread still needs it."""
        with self._lock:
            self._holders -= 1
            self._drop |= drop
            if self._holders or self._terminal is None:
                return
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.flush()
            os.dup2(self._terminal, 2)
            os.close(self._terminal)
            if os.lseek(self._file, 0, os.SEEK_CUR):
                os.lseek(self._file, 0, os.SEEK_SET)
                with open(self._file, "rb", closefd=False) as file:
                    written = file.read()
                os.ftruncate(self._file, 0)
                os.lseek(self._file, 0, os.SEEK_SET)
                if not self._drop:
                    with contextlib.suppress(OSError):
                        os.write(2, written)
            self._terminal = None
            self._drop = False


def _unnamed_file() -> int:
    """Return the descriptor of a new file that has no name."""
    with memory_file() as file:
        return os.dup(file.fileno())


_STANDARD_ERROR = _StandardErrorRedirect()


def _unsound(path: "str | os.PathLike[str]", kind: str, error: BaseException) -> VerificationError:
    message = " ".join(str(error).split())[:300]
    detail = f": {message}" if message else f": {type(error).__name__}"
    return VerificationError(f"{path}: not {kind} that can be read{detail}")
