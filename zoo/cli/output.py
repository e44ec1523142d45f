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
from typing import Any, Literal, TextIO, TypeVar

import click

from zoo.errors import with_places
from zoo.io.progress import enable_progress, shows_progress
from zoo.io.terminal import escape_controls, escape_json, terminal_width, wrap

Function = TypeVar("Function", bound=Callable[..., Any])

STDOUT = "standard output"
MAX_NUMBERS_SHOWN = 4  # Numbers of a vector that a terminal shows.
NUMBER = re.compile(r"[-+]?[0-9][0-9,]*(\.[0-9]+)?(e[-+]?[0-9]+)?( ?(%|[kMGTB]?B?))?")

NARROWEST_CELL = 12  # The least width of a cell whose text is broken, in columns.

_held_texts: list[list[str]] = []  # Results that are written when an upload has ended.
_results: list[TextIO | None] = []  # Standard output, while ``sys.stdout`` is standard error.


def prepare() -> None:
    """Set up standard streams, warnings and logging; warnings and log records take a line each."""
    # A closed standard stream gets the null device. Otherwise, the next opened file would reuse
    # its descriptor.
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # This takes the lowest free descriptor.
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

    Args:
        verbosity: -1 for nothing, 0 for progress and zoo's own notes, 1 also for the log records
            of all libraries from level INFO.
    """
    enable_progress(verbosity >= 0)
    level = {-1: logging.WARNING, 0: logging.INFO, 1: logging.DEBUG}[verbosity]
    logging.getLogger("zoo").setLevel(level)
    handlers = [handler for handler in logging.root.handlers if not isinstance(handler, _Handler)]
    root_level = logging.WARNING
    if verbosity > 0:
        handlers.append(_log_handler())
        root_level = logging.INFO
    logging.root.handlers[:] = handlers
    logging.root.setLevel(root_level)


def _log_handler() -> logging.Handler:
    handler = _Handler()
    handler.setFormatter(_Formatter("%(message)s"))
    return handler


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = escape_controls(with_places(super().format(record)))
        return wrap(text, terminal_width(sys.stderr))


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


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Write the results of the block when it ends without an error, and nothing before."""
    texts: list[str] = []
    _held_texts.append(texts)
    try:
        yield
    finally:
        _held_texts.remove(texts)
    _write("".join(texts))


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
    if is_terminal():
        value = _shorten_lists(value)
    json_line(value)


def _shorten_lists(value: Any) -> Any:
    """Return a value in which long lists of numbers are their first ones and the size."""
    if isinstance(value, dict):
        return {key: _shorten_lists(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    first_number: Any = value
    while isinstance(first_number, list) and first_number:
        first_number = first_number[0]
    if not isinstance(first_number, float) or len(value) <= MAX_NUMBERS_SHOWN + 1:
        return [_shorten_lists(item) for item in value]
    items = [_shorten_lists(item) for item in value[:MAX_NUMBERS_SHOWN]]
    items.append(f"... {len(value):,} in all")
    return items


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
    """Write one line to standard error, on a terminal broken at words; ignore errors of writing."""
    text = with_places(text)
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
    """Return the lines of a table; columns of numbers are aligned at the right.

    Where it is wider than the terminal, the columns ``drops`` are left out, the first ones first,
    as far as needed; then the cells of the columns ``wraps``, by default of the widest ones, are
    broken at words.
    """
    all_rows = []
    for row in (header, *rows):
        all_rows.append([escape_controls(with_places(cell)) for cell in row])
    available_width = terminal_width(_stdout())
    for name in drops:
        if available_width is None or _table_width(_widths(all_rows)) <= available_width:
            break
        position = all_rows[0].index(name)
        for cells in all_rows:
            del cells[position]
    widths = _widths(all_rows)
    is_number_column = list[bool]()
    for column in zip(*all_rows, strict=True):
        texts = [text for text in column[1:] if text]  # The header is not a number.
        is_number_column.append(bool(texts) and all(map(NUMBER.fullmatch, texts)))
    if available_width is not None and _table_width(widths) > available_width:
        return _wrapped_table(all_rows, is_number_column, wraps, available_width)
    lines = []
    for row in all_rows:
        cells = []
        for text, width, is_number in zip(row, widths, is_number_column, strict=True):
            cells.append(text.rjust(width) if is_number else text.ljust(width))
        lines.append("  ".join(cells).rstrip())
    return lines


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _table_width(widths: Sequence[int]) -> int:
    """Return the width of a table, with two spaces between columns."""
    return sum(widths) + 2 * len(widths) - 2


def _wrapped_table(
    rows: Sequence[Sequence[str]],
    is_number_column: Sequence[bool],
    wraps: Collection[str],
    available_width: int,
) -> list[str]:
    import io

    from rich.console import Console
    from rich.table import Table

    header = rows[0]
    widths = _widths(rows)
    fixed_widths = []
    if wraps:
        for name, width in zip(header, widths, strict=True):
            if name not in wraps:
                fixed_widths.append(width)
    wrapped_columns = len(widths) - len(fixed_widths)
    least_width = sum(fixed_widths) + 2 * len(widths) + NARROWEST_CELL * wrapped_columns
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for name, is_number in zip(header, is_number_column, strict=True):
        is_fixed = bool(wraps) and name not in wraps and least_width <= available_width
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(justify=justify, no_wrap=is_fixed, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(
        file=io.StringIO(), width=available_width, color_system=None, markup=False, highlight=False
    )
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def side_by_side(names: Sequence[str], columns: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table of columns, each with its header first.

    Where it is wider than the terminal, it becomes several tables, one below the other, that all
    begin with the column ``names``.
    """
    available_width = terminal_width(_stdout())
    lines = list[str]()
    remaining_columns = list(columns)
    while remaining_columns:
        number = len(remaining_columns)
        while number > 1 and available_width is not None:
            rows = list(zip(names, *remaining_columns[:number], strict=True))
            if _table_width(_widths(rows)) <= available_width:
                break
            number -= 1
        header, *body = zip(names, *remaining_columns[:number], strict=True)
        if lines:
            lines.append("")
        lines += table(body, header)
        remaining_columns = remaining_columns[number:]
    return lines


def fields(values: Mapping[str, str], indent: str = "") -> list[str]:
    """Return aligned lines of names and values; a value that is too long goes on below itself."""
    available_width = terminal_width(_stdout())
    name_width = len(indent) + max(map(len, values), default=0) + 2
    lines = []
    for name, value in values.items():
        text = f"{indent}{escape_controls(name)}".ljust(name_width) + escape_controls(value)
        if available_width is None or len(text) <= available_width:
            lines.append(text.rstrip())
            continue
        longest_word = max(map(len, value.split()), default=0)
        next_indent = name_width
        if name_width + longest_word > available_width:
            next_indent = len(indent) + 4
        lines += wrap(text, available_width, indent=" " * next_indent).splitlines()
    return lines


def markdown(rows: Sequence[Sequence[str]], header: Sequence[str]) -> list[str]:
    """Return the lines of a Markdown table."""
    from zoo.io.page_text import markdown_table  # imports ``html``, which --help does not need

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
        value: dict[str, Any] = {"error": what, "hint": hint}
        if details:
            value["details"] = list(details)
        value["exit_code"] = code
        with contextlib.suppress(OSError):
            json_line(value)


def shorten(text: str, limit: int = 1200) -> str:
    """Return a text, with the middle replaced if it is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [{len(text) - 2 * half:,} characters] {text[-half:]}"


@contextlib.contextmanager
def flushed() -> Iterator[None]:
    """Flush standard output at the end of the block, also if click exits from it after help."""
    try:
        yield
    except click.exceptions.Exit:
        _flush()
        raise
    _flush()


def _flush() -> None:
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
    if not hasattr(select, "poll"):  # Windows
        return False
    try:
        poll = select.poll()
        poll.register(1, select.POLLOUT)
        return any(event & select.POLLERR for _, event in poll.poll(0))
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
    text = with_places(text)
    stream = _stdout()
    if stream is None:  # The parent process closed it.
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), STDOUT)
    with _naming_stdout():
        if _held_texts:
            _held_texts[-1].append(text)
            return
        stream.write(text)
        stream.flush()
