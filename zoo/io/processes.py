"""Processes that a command starts to share its work."""

import contextlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator
from types import ModuleType


@contextlib.contextmanager
def hidden_main() -> Iterator[None]:
    """Hide ``__main__`` while a process is started.

    A new process imports it. It may be a script without a guard, which would run again, and none of
    the processes here needs it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def exit_with_parent() -> None:
    """End this process when the one that has started it ends; called once in the process."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this runs in a child"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
