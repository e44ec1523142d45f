"""Mapping of exceptions to an error line and an exit code."""

import errno
import json

import pytest

from zoo import cli
from zoo.cli.failure import report
from zoo.errors import SourceError, VerificationError


class PanicException(BaseException):
    """Stand-in for pyo3's exception of this name, also derived from ``BaseException``."""


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (VerificationError("a\nb: \x1b[31m", "c"), 3, "error: a\\nb: \\x1b[31m; c\n"),
        (SourceError("gone"), 4, "error: gone\n"),
        (MemoryError(), 2, "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), 2, "not enough"),
        (RuntimeError("can't start new thread"), 2, "not enough memory"),
        (ImportError("a.so: failed to map segment from shared object"), 2, "not enough memory"),
        (OSError(errno.ENOSPC, "No space left", "out/x"), 2, "cannot write out/x: No space left"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x" * 9000), 2, "File name too long"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 4, "x: Permission denied"),
        (RecursionError("maximum recursion depth exceeded"), 1, "a bug in zoo: RecursionError"),
        (PanicException("called `unwrap()`\non"), 1, "a bug in zoo: PanicException: called"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_one_line_and_the_documented_code(
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, ["--json"]) == code
    out, err = capsys.readouterr()
    assert message in err and err.startswith("error: ") and err.count("\n") == 1 and len(err) < 600
    assert json.loads(out)["exit_code"] == code


def test_a_signal_after_the_end_of_a_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []

    def interrupted_once(code: int) -> None:  # as if the signal came before its handlers are set
        codes.append(code)
        if len(codes) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli, "exit_on_signals", interrupted_once)
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert (ended.value.code, codes) == (130, [0, 130])
    assert capsys.readouterr().err == "error: interrupted\n"


def test_an_error_that_an_interruption_causes_is_an_interruption(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def read_closed_file() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            try:
                raise OSError(errno.EBADF, "Bad file descriptor", "model.safetensors")
            except OSError as error:
                raise SourceError("model.safetensors: Bad file descriptor") from error

    def raise_kept_error() -> None:  # as torch's exporter does
        kept = None
        try:
            read_closed_file()
        except SourceError as error:
            kept = error
        raise VerificationError("the model cannot be exported") from kept

    for interrupted in (read_closed_file, raise_kept_error):
        with pytest.raises((SourceError, VerificationError)) as caught:
            interrupted()
        assert report(caught.value, []) == 130
        assert capsys.readouterr().err == "error: interrupted\n"


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOO_DEBUG", "1")
    with pytest.raises(VerificationError):
        report(VerificationError("a"), [])
