"""Program that trains, and kills itself while a checkpoint is written.

Its arguments are SAVE MOMENT followed by those of the command line: the number of the save whose
write is interrupted, from 1, and the number of function calls of the writing threads after which
the main process is killed. With MOMENT 0 it ends by itself and prints the number of calls.
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

from zoo.cli import main as run_command

WRITERS = ("zoo-checkpoint", "AsyncCheckpointExecutor")  # our thread, and torch's


def main(arguments: Sequence[str]) -> None:
    save, moment, *words = arguments
    first_function = "save_wrapper" if "--fsdp" in words else "_finish"
    calls = 0
    saves = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls, saves
        if not threading.current_thread().name.startswith(WRITERS):
            sys.setprofile(None)
            return
        if event == "call" and frame.f_code.co_name == first_function:
            saves += 1
        if saves != int(save) or event not in ("call", "c_call"):
            return
        calls += 1
        if calls == int(moment):
            os.kill(os.getpid(), signal.SIGKILL)

    is_main = os.environ["RANK"] == "0"
    if is_main:
        threading.setprofile(count)
    try:
        run_command(words)
    finally:
        threading.setprofile(None)
        if is_main:
            print(calls)
