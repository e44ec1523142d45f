"""Output of the commands: results on standard output, everything else on standard error.

All text that a command writes goes through this module, which escapes control characters. While a
command runs, ``sys.stdout`` is standard error, so that text printed by plugins and libraries does
not mix with the results.
"""

import contextlib
import errno
import functools
import logging
import os
import select
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO, TypeVar

from zoo.io.progress import enable_progress
from zoo.io.terminal import escape_controls, escape_json

Function = TypeVar("Function", bound=Callable[..., Any])

STDOUT = "standard output"
SHOWN_NUMBERS = 4  # of a vector, on a terminal

_results: list[TextIO | None] = []  # standard output, while ``sys.stdout`` is standard error


def prepare() -> None:
    """Set up standard streams, warnings and logging; warnings and log records take a line each."""
    # a closed standard stream gets the null device: the next opened file would reuse its descriptor
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _warning
    logger = logging.getLogger("zoo")
    logger.handlers[:] = [_log_handler()]
    logger.propagate = False
    set_verbosity(0)


def set_verbosity(verbosity: int) -> None:
    """Set the amount of output on standard error in addition to warnings and errors.

    -1 for nothing, 0 for progress and zoo's own notes, 1 also for the log records of all libraries
    from level INFO.
    """
    enable_progress(verbosity >= 0)
    level = {-1: logging.WARNING, 0: logging.INFO, 1: logging.DEBUG}[verbosity]
    logging.getLogger("zoo").setLevel(level)
    others = [handler for handler in logging.root.handlers if not isinstance(handler, _Handler)]
    logging.root.handlers[:] = [*others, _log_handler()] if verbosity > 0 else others
    logging.root.setLevel(logging.INFO if verbosity > 0 else logging.WARNING)


def _log_handler() -> logging.Handler:
    handler = _Handler()
    handler.setFormatter(_Formatter("%(message)s"))
    return handler


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return escape_controls(super().format(record))


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:
        """Drop a record that cannot be written; the default prints a traceback."""


def _warning(message: Any, category: type[Warning], *args: Any, **kwargs: Any) -> None:
    if issubclass(category, UserWarning):
        note(f"warning: {' '.join(str(message).split())}")


@contextlib.contextmanager
def only_results() -> Iterator[None]:
    """Point ``sys.stdout`` at standard error within the block."""
    _results.append(sys.stdout)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = _results.pop()


def redirect_prints(function: Function) -> Function:
    """Decorate a command so that ``print`` goes to standard error while it runs."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        with only_results():
            return function(*arguments, **options)

    return run  # type: ignore[return-value]


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    stream = _stdout()
    return stream is not None and stream.isatty()


def line(text: str) -> None:
    """Write one line to standard output."""
    _write(f"{escape_controls(text)}\n")


def piece(text: str) -> None:
    """Write a piece of streamed text, and flush it.

    Line ends, tabs and direction marks, which Arabic and Hebrew text needs, are not escaped.
    """
    _write(escape_controls(text, keep="\n\t\u061c\u200e\u200f"))


def result_line(value: dict[str, Any]) -> None:
    """Write a result as one line of JSON; on a terminal, vectors by their first numbers."""
    json_line(_shortened(value) if is_terminal() else value)


def _shortened(value: Any) -> Any:
    """Return a value in which long lists of numbers are their first ones and the size."""
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    first: Any = value
    while isinstance(first, list) and first:
        first = first[0]
    if not isinstance(first, float):
        return [_shortened(item) for item in value]
    rest = [f"... {len(value):,} in all"] if len(value) > SHOWN_NUMBERS + 1 else []
    return [_shortened(item) for item in (value[:SHOWN_NUMBERS] if rest else value)] + rest


def json_line(value: Any) -> None:
    """Write a value as one line of JSON; NaN and infinities are null."""
    from zoo.io.json import dump_json

    text = escape_json(dump_json(value, ensure_ascii=False))
    try:
        text.encode(getattr(_stdout(), "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = dump_json(value)
    _write(f"{text}\n")


def note(text: str) -> None:
    """Write one line to standard error; errors of writing are ignored."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{escape_controls(text)}\n")
            sys.stderr.flush()


def result(value: dict[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Write a result, as one JSON object or as lines of text."""
    if as_json:
        json_line(value)
        return
    for text in lines:
        line(text)


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> list[str]:
    """Return the lines of a table with aligned columns."""
    every = [[escape_controls(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[k]) for row in every) for k in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    ]


def markdown(rows: Sequence[Sequence[str]], header: Sequence[str]) -> list[str]:
    """Return the lines of a Markdown table."""
    every = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(row)} |" for row in every]


def fail(
    what: str, hint: str, code: int, arguments: Sequence[str], details: Sequence[str] = ()
) -> None:
    """Write an error as one line, its details as further ones; with ``--json``, as an object."""
    line = "; ".join(shorten(escape_controls(part)) for part in (what, hint) if part)
    note(f"error: {line}")
    for detail in details:
        note(f"  {shorten(escape_controls(detail))}")
    if "--json" in arguments:
        more = {"details": list(details)} if details else {}
        with contextlib.suppress(OSError):
            json_line({"error": what, "hint": hint, **more, "exit_code": code})


def shorten(text: str, limit: int = 1200) -> str:
    """Return a text, with the middle replaced if it is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [{len(text) - 2 * half:,} characters] {text[-half:]}"


def flush() -> None:
    """Flush standard output."""
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
    """Return whether standard output is a pipe whose reader has closed it."""
    try:
        watched = select.poll()
        watched.register(1, select.POLLOUT)
        return any(event & select.POLLERR for _, event in watched.poll(0))
    except OSError:
        return False


def abandon_stdout() -> None:
    """Discard the buffer of standard output after a failed write."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stdout() -> TextIO | None:
    return _results[-1] if _results else sys.stdout


def _write(text: str) -> None:
    stream = _stdout()
    if stream is None:  # closed by the parent process
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), STDOUT)
    with _naming_stdout():
        stream.write(text)
        stream.flush()
