"""Isolation of the code of third parties' plugins while it is imported and its hooks are called."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Send printed text to standard error, and turn ``os._exit`` into ``SystemExit``.

    Standard output has the results of commands and may be JSON. Text that C code or a subprocess
    writes to its descriptor is redirected as well.
    """
    with _stdout_to_stderr(), contextlib.redirect_stdout(sys.stderr), _exits_raised():
        yield


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Point descriptor 1 at standard error within the block."""
    saved = None
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed or replaced streams
        sys.stdout.flush()
        saved = os.dup(1)
        os.dup2(2, 1)
    try:
        yield
    finally:
        if saved is not None:
            os.dup2(saved, 1)
            os.close(saved)


@contextlib.contextmanager
def _exits_raised() -> Iterator[None]:
    real_exit, process = os._exit, os.getpid()

    def raise_exit(status: int) -> NoReturn:
        if os.getpid() != process:  # a forked process may exit
            real_exit(status)
        raise SystemExit(status)

    os._exit = raise_exit
    try:
        yield
    finally:
        os._exit = real_exit
