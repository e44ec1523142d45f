"""Output of the commands: results on standard output, everything else on standard error."""

# All text that a command writes goes through this module, which escapes control characters, and
# breaks lines at words where the stream is a terminal (or $COLUMNS is set). While a command runs,
# ``sys.stdout`` is standard error, so that text printed by plugins and libraries does not mix with
# the results.

import contextlib
import errno
import logging
import os
import re
import select
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO, TypeVar

from zoo.io.page_text import markdown_table
from zoo.io.progress import enable_progress, shows_progress
from zoo.io.terminal import escape_controls, escape_json, terminal_width, wrap

Function = TypeVar("Function", bound=Callable[..., Any])

STDOUT = "standard output"
SHOWN_NUMBERS = 4  # of a vector, on a terminal
NUMBER = re.compile(r"[-+]?[0-9][0-9,]*(\.[0-9]+)?(e[-+]?[0-9]+)?( ?(%|[kMGTB]?B?))?")

NARROWEST_CELL = 12  # columns of a cell whose text is broken

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
    """Set the amount of output on standard error in addition to warnings and errors."""
    # -1 for nothing, 0 for progress and zoo's own notes, 1 also for the log records of all
    # libraries from level INFO.
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
        return wrap(escape_controls(super().format(record)), terminal_width(sys.stderr))


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


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    stream = _stdout()
    return stream is not None and stream.isatty()


def line(text: str, *, indent: str | None = None) -> None:
    """Write one line to standard output, on a terminal broken at words; see ``wrap``."""
    _write(f"{wrap(escape_controls(text), terminal_width(_stdout()), indent=indent)}\n")


def piece(text: str) -> None:
    """Write a piece of streamed text, and flush it."""
    # Line ends, tabs and direction marks, which Arabic and Hebrew text needs, are not escaped.
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
    """Write one line to standard error, on a terminal broken at words."""
    # Errors of writing are ignored.
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{wrap(escape_controls(text), terminal_width(sys.stderr))}\n")
            sys.stderr.flush()


def hint(text: str) -> None:
    """Suggest a further command, on standard error, if a person reads the results."""
    if is_terminal() and shows_progress():
        note(text)


def result(
    value: dict[str, Any], lines: Iterable[str], *, as_json: bool, is_file: bool = False
) -> None:
    """Write a result, as one JSON object or as lines of text; lines of a file stay whole."""
    if as_json:
        json_line(value)
        return
    for text in lines:
        if is_file:
            piece(f"{text}\n")
        else:
            line(text)


def table(
    rows: Sequence[Sequence[str]],
    header: Sequence[str],
    *,
    wraps: Collection[str] = (),
    drops: Sequence[str] = (),
) -> list[str]:
    """Return the lines of a table; columns of numbers are aligned at the right."""
    # Where it is wider than the terminal, the columns ``drops`` are left out, the first ones first,
    # as far as needed; then the cells of the columns ``wraps``, by default of the widest ones, are
    # broken at words.
    every = [[escape_controls(cell) for cell in row] for row in (header, *rows)]
    columns = terminal_width(_stdout())
    for name in drops:
        if columns is None or sum(_widths(every)) + 2 * len(every[0]) - 2 <= columns:
            break
        k = every[0].index(name)
        every = [[*row[:k], *row[k + 1 :]] for row in every]
    widths = _widths(every)
    rights = list[bool]()
    for cells in zip(*every, strict=True):  # numbers below the header are aligned on the right
        present = list(filter(None, cells[1:]))
        rights.append(bool(present) and all(map(NUMBER.fullmatch, present)))
    if columns is not None and sum(widths) + 2 * len(widths) - 2 > columns:
        return _wrapped_table(every, rights, wraps, columns)
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, rights, strict=True)
        ).rstrip()
        for row in every
    ]


def _widths(every: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, cells)) for cells in zip(*every, strict=True)]


def _wrapped_table(
    every: Sequence[Sequence[str]], rights: Sequence[bool], wraps: Collection[str], columns: int
) -> list[str]:
    import io

    from rich.console import Console
    from rich.table import Table

    widths = _widths(every)
    fixed = [w for name, w in zip(every[0], widths, strict=True) if wraps and name not in wraps]
    fits = sum(fixed) + 2 * len(widths) + NARROWEST_CELL * (len(widths) - len(fixed)) <= columns
    fitted = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for name, right in zip(every[0], rights, strict=True):
        keeps = fits and bool(wraps) and name not in wraps
        fitted.add_column(justify="right" if right else "left", no_wrap=keeps, overflow="fold")
    for row in every:
        fitted.add_row(*row)
    console = Console(
        file=io.StringIO(), width=columns, color_system=None, markup=False, highlight=False
    )
    with console.capture() as captured:
        console.print(fitted)
    return [line.rstrip() for line in captured.get().splitlines()]


def side_by_side(names: Sequence[str], columns: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table of columns, each with its header first."""
    # Where it is wider than the terminal, it becomes several tables, one below the other, that all
    # begin with the column ``names``.
    limit = terminal_width(_stdout())
    lines = list[str]()
    rest = list(columns)
    while rest:
        count = len(rest)
        while count > 1 and limit is not None:
            every = list(zip(names, *rest[:count], strict=True))
            if sum(_widths(every)) + 2 * count <= limit:
                break
            count -= 1
        header, *rows = zip(names, *rest[:count], strict=True)
        lines += [*([""] if lines else []), *table(rows, header)]
        rest = rest[count:]
    return lines


def fields(values: Mapping[str, str], indent: str = "") -> list[str]:
    """Return aligned lines of names and values; a value that is too long goes on below itself."""
    columns = terminal_width(_stdout())
    width = len(indent) + max(map(len, values), default=0) + 2
    lines = []
    for name, value in values.items():
        text = f"{indent}{escape_controls(name)}".ljust(width) + escape_controls(value)
        if columns is not None and len(text) > columns:
            longest = max(map(len, value.split()), default=0)
            below = " " * (width if width + longest <= columns else len(indent) + 4)
            lines += wrap(text, columns, indent=below).splitlines()
        else:
            lines.append(text.rstrip())
    return lines


def markdown(rows: Sequence[Sequence[str]], header: Sequence[str]) -> list[str]:
    """Return the lines of a Markdown table."""
    return list(markdown_table(rows, header))


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
