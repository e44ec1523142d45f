"""A command that runs in the process of the tests."""

import signal
from collections.abc import Sequence

import pytest

from zoo.cli import main


def exit_code(arguments: Sequence[str]) -> int:
    """Run a command to its end, and restore the handlers of signals; return its exit code."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
    handlers = [signal.getsignal(number) for number in numbers]
    try:
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
    assert isinstance(end.value.code, int)
    return end.value.code
