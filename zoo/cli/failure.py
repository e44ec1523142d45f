"""Reporting of exceptions: one line on standard error, perhaps a list, and an exit code."""

import errno
import os
import sys
import time
import traceback
from collections.abc import Sequence

import click

from zoo.cli import output
from zoo.errors import Interrupted, SourceError, UsageError, ZooError
from zoo.io.numbers import int_from_environment
from zoo.io.output.full_disks import remedy
from zoo.training.distributed.reporting import state

INTERRUPTED = 130
# A launcher ends the processes of a run within this time, if one has failed.
LAUNCHER_SECONDS = 5.0
# Errors of writing; all other errors of the operating system concern files that are read.
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
_WRONG_NAME = {errno.ENAMETOOLONG, errno.ELOOP, errno.EILSEQ, errno.EINVAL}
# torch reports a failed allocation on a CPU as a RuntimeError, and Python one of a thread's stack;
# the loader of shared libraries reports one as an ImportError.
_NO_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "can't start new thread",
    "failed to map segment from shared object",
)


def report(error: BaseException, arguments: Sequence[str]) -> int:
    """Report the exception that ended a command, and return the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return error.exit_code
    # An interruption may show as another error, for example in a thread whose file it closed.
    # One with a message, such as of a neighbour that was killed, says more.
    cause = None if isinstance(error, Interrupted) else error
    while cause is not None and not isinstance(cause, KeyboardInterrupt | click.Abort):
        cause = cause.__cause__ or cause.__context__
    if cause is not None:
        return _report_interruption(error, arguments)
    # click exits when a pipe is closed.
    if isinstance(error, BrokenPipeError | SystemExit) and output.reader_is_gone():
        output.abandon_stdout()
        return 0
    if isinstance(error, click.ClickException):
        if _others_report():
            return error.exit_code
        output.fail(_click_message(error), "", error.exit_code, arguments)
        return error.exit_code
    if os.environ.get("ZOO_DEBUG") == "1":
        raise error
    if isinstance(error, ZooError):
        zoo_error = error
        if _others_report():
            return zoo_error.exit_code
    else:
        zoo_error = _as_zoo_error(error)
    if isinstance(error, OSError) and error.filename == output.STDOUT:
        output.abandon_stdout()
    output.fail(zoo_error.what, zoo_error.hint, zoo_error.exit_code, arguments, zoo_error.details)
    return zoo_error.exit_code


def _report_interruption(error: BaseException, arguments: Sequence[str]) -> int:
    if isinstance(error, KeyboardInterrupt) and sys.stderr is not None and sys.stderr.isatty():
        output.note("")  # after the ^C that the terminal shows
    output.fail("interrupted", "", INTERRUPTED, arguments)
    return INTERRUPTED


def _click_message(error: click.ClickException) -> str:
    """Return the message of an error of click, with what was meant and where to read more."""
    text = " ".join(error.format_message().split()).rstrip(".")
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return text
    if isinstance(error, click.NoSuchOption):
        from zoo.cli.suggestions import suggest_option

        text = f"no option is called {error.option_name}"
        hint = suggest_option(error.option_name, error.ctx)
        if hint:
            text += f"; {hint}"
    return f"{text} (see `{error.ctx.command_path} --help`)"


def _others_report() -> bool:
    """Return whether the main process of a run has reported an error of all processes.

    Launchers then end this process. It waits for that, before there is a process group.
    """
    if state.has_process_group:
        return False
    if int_from_environment("WORLD_SIZE", 1) <= 1 or int_from_environment("RANK", 0) <= 0:
        return False
    try:
        time.sleep(LAUNCHER_SECONDS)
    except KeyboardInterrupt:
        return True
    return False


def _is_from_click(error: BaseException) -> bool:
    """Return whether click raised an error, while it wrote help to standard output."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename == click.utils.__file__


def _as_zoo_error(error: BaseException) -> ZooError:
    """Return the error for an exception of Python, which may be a bug in zoo."""
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return UsageError("there is not enough memory for this", "use a machine with more of it")
    from zoo.plugins.attribution import plugin_error  # An import takes memory, so it comes late.

    attributed_error = plugin_error(error)
    if attributed_error:
        return attributed_error
    if isinstance(error, OSError) and error.errno is not None:
        return _from_os_error(error)
    what = f"this is a bug in zoo: {type(error).__name__}: {' '.join(str(error).split())}"
    return ZooError(what, "ZOO_DEBUG=1 shows where; please report it")


def _from_os_error(error: OSError) -> ZooError:
    """Return the error for an exception of the operating system, with the name of the file."""
    name = ""
    if isinstance(error.filename, str | bytes):
        name = os.fsdecode(error.filename)
    if not name and error.errno in _UNWRITABLE:
        name = output.STDOUT if _is_from_click(error) else "a file"
    what = str(error.strerror)
    if len(name) > 300:
        what = f"{name[:150]}...{name[-150:]}: {what}"
    elif name:
        what = f"{name}: {what}"
    if name == output.STDOUT:
        return UsageError(f"cannot write {what}")
    if error.errno in _UNWRITABLE:
        return UsageError(f"cannot write {what}", remedy(error))
    if error.errno in _WRONG_NAME:
        return UsageError(what)
    return SourceError(what)
