"""Output of the commands: results on standard output, everything else on standard error.

All text that a command writes goes through this module, which escapes what a terminal would obey.
While a command runs, ``sys.stdout`` is standard error: what a plugin or a library prints does not
get into the results.
"""

import contextlib
import errno
import functools
import json
import logging
import os
import select
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO, TypeVar

from zoo.io.terminal import escape_controls, escape_json

Function = TypeVar("Function", bound=Callable[..., Any])

STDOUT = "standard output"

_results: list[TextIO | None] = []  # standard output, while ``sys.stdout`` is standard error


def prepare() -> None:
    """Send warnings and log records to standard error, a line each."""
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _warning
    handler = _Handler()
    handler.setFormatter(_Formatter("%(message)s"))
    logger = logging.getLogger("zoo")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _open_standard_streams() -> None:
    """Occupy descriptors of closed streams, or else the next file that is opened gets one."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return escape_controls(super().format(record))


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:
        """Drop a record that cannot be written, rather than show a traceback."""


def _warning(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, UserWarning):
        note(f"warning: {' '.join(str(message).split())}")


@contextlib.contextmanager
def only_results() -> Iterator[None]:
    """Let nothing but this module write to standard output."""
    _results.append(sys.stdout)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = _results.pop()


def reporting(function: Function) -> Function:
    """Decorate a command: what anybody prints while it runs goes to standard error."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        with only_results():
            return function(*arguments, **options)

    return run  # type: ignore[return-value]


def is_terminal() -> bool:
    """Whether results are written to a terminal."""
    stream = _stdout()
    return stream is not None and stream.isatty()


def line(text: str) -> None:
    """Write one line of a result."""
    _write(f"{escape_controls(text)}\n")


def piece(text: str) -> None:
    """Write a part of a text as it comes, and show it at once.

    Line ends, tabs and the marks that texts in Arabic and Hebrew need are part of the text.
    """
    _write(escape_controls(text, keep="\n\t\u061c\u200e\u200f"))


def json_line(value: Any) -> None:
    """Write a value as JSON, on one line."""
    text = escape_json(json.dumps(value, ensure_ascii=False))
    try:
        text.encode(getattr(_stdout(), "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value)
    _write(f"{text}\n")


def note(text: str) -> None:
    """Write one line to standard error; nobody may be reading it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{escape_controls(text)}\n")
            sys.stderr.flush()


def result(value: dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Write a result: one JSON object, or lines for people."""
    if as_json:
        json_line(value)
        return
    for text in lines:
        line(text)


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> list[str]:
    """Lay out rows in aligned columns."""
    every = [[escape_controls(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[k]) for row in every) for k in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]


def markdown(rows: Sequence[Sequence[str]], header: Sequence[str]) -> list[str]:
    """Lay out rows as a table in Markdown."""
    every = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(row)} |" for row in every]


def fail(what: str, hint: str, code: int, arguments: Sequence[str]) -> None:
    """Write an error as one line, and as a JSON object if one was asked for."""
    line = "; ".join(shorten(escape_controls(part)) for part in (what, hint) if part)
    note(f"error: {line}")
    if "--json" in arguments:
        with contextlib.suppress(OSError):
            json_line({"error": what, "hint": hint, "exit_code": code})


def shorten(text: str, limit: int = 1200) -> str:
    """Return a text without its middle if it is long, as where it repeats a value of a file."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [{len(text) - 2 * half:,} characters] {text[-half:]}"


def flush() -> None:
    """Write what is buffered for standard output.

    Raises:
        OSError: it cannot be written; the name of the file is ``STDOUT``.
    """
    if sys.stdout is not None:
        with _naming_stdout():
            sys.stdout.flush()


@contextlib.contextmanager
def _naming_stdout() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, STDOUT) from error


def reader_is_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    try:
        watched = select.poll()
        watched.register(1, select.POLLOUT)
        return any(event & select.POLLERR for _, event in watched.poll(0))
    except OSError:
        return False


def abandon_stdout() -> None:
    """Discard what is buffered for standard output, which cannot be written."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stdout() -> TextIO | None:
    return _results[-1] if _results else sys.stdout


def _write(text: str) -> None:
    stream = _stdout()
    if stream is None:  # it was closed when the command was started
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), STDOUT)
    with _naming_stdout():
        stream.write(text)
        stream.flush()
