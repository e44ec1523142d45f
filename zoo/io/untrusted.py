"""Conversion of a library's parser errors to errors that name the file."""

import contextlib
import os
import threading
from collections.abc import Iterator
from types import TracebackType

from zoo.errors import VerificationError, ZooError
from zoo.io.scratch import memory_file


@contextlib.contextmanager
def parsing(path: "str | os.PathLike[str]", kind: str) -> Iterator[None]:
    """Convert exceptions of a library's parser to a ``VerificationError`` that names the file."""
    # Wrap only the call of the parser: a bug of the caller inside the block would be reported as an
    # error of the file. Errors of the operating system and interrupts pass unchanged
    try:
        yield
    except BaseException as error:
        unsound = _parser_error(path, kind, error)
        if unsound is None:
            raise
        raise unsound from error


def rust_parsing(
    path: "str | os.PathLike[str]", kind: str
) -> contextlib.AbstractContextManager[None]:
    """Convert exceptions like ``parsing``, and suppress the message of a panic of Rust code."""
    return _RustParsing(path, kind)


class _RustParsing:
    """Context of a call of Rust code; cheap, since every text is tokenized in one."""

    # The message is written to the file descriptor of standard error before the exception is
    # raised. Other output to standard error appears when the block ends

    def __init__(self, path: "str | os.PathLike[str]", kind: str) -> None:
        self._path = path
        self._kind = kind

    def __enter__(self) -> None:
        _STANDARD_ERROR.hold()

    def __exit__(
        self, _: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            _STANDARD_ERROR.release(drop=False)
            return
        _STANDARD_ERROR.release(drop=_is_panic(error))
        unsound = _parser_error(self._path, self._kind, error)
        if unsound is not None:
            raise unsound from error


def _is_panic(error: BaseException | None) -> bool:
    """Return whether Rust code panicked; pyo3 derives the exception from ``BaseException``."""
    return type(error).__name__ == "PanicException"


def _parser_error(
    path: "str | os.PathLike[str]", kind: str, error: BaseException
) -> VerificationError | None:
    """Return the error of a file for an exception of its parser; ``None`` for other exceptions."""
    if isinstance(error, (ZooError, OSError)):
        return None
    if isinstance(error, Exception) or _is_panic(error):
        return _unsound(path, kind, error)
    return None


class _StandardErrorRedirect:
    """Redirection of the process's standard error to a file, counted over threads."""

    # Threads share one file, since the descriptor belongs to the process. A text that is tokenized
    # by itself takes less time than a new file, so that it is kept. What Python buffers of standard
    # error stays there: it is written later, to the terminal or to the file.

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
