"""The progress bar, with and without a terminal."""

import os
import pty
import subprocess
import sys

PROGRAM = """
from zoo.cli.output import prepare
from zoo.training.logging.progress import training_progress

prepare()
with training_progress(2000) as show:
    show({"step": 1000, "split": "train", "loss": 2.5}, {"tokens_per_second": 1234.6, "mfu": 0.5})
    losses = {"masked": 1.25, "pairs": 0.25}
    show({"step": 1000, "split": "validation", "loss": 1.5, "losses": losses}, {})
    one = {"losses": {"a": 1}, "metrics": {"b": 2}}
    show({"step": 2000, "split": "validation", "loss": 1, **one}, {})
"""
LINES = [
    "step 1,000: validation loss 1.5000, masked 1.2500, pairs 0.2500",
    "step 2,000: validation loss 1.0000, b 2.0000",
]


def test_without_a_terminal_there_is_a_line_a_validation() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stderr.splitlines() == LINES and done.stdout == "" and done.returncode == 0


def test_on_a_terminal_there_is_a_bar_below_the_lines() -> None:
    ours, theirs = pty.openpty()
    setting = {**os.environ, "COLUMNS": "100", "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stderr=theirs, env=setting) as process:
        os.close(theirs)
        shown = b""
        while piece := _read(ours):
            shown += piece
    os.close(ours)
    text = shown.decode()
    assert process.returncode == 0
    assert "1000/2000" in text and "loss 2.500" in text
    assert "1,235 tokens/s" in text and "MFU 50.0%" in text
    for line in LINES:
        assert f"{line}\r\n" in text  # not mixed with the progress bar


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 4096)
    except OSError:  # raised on Linux when the other end is closed
        return b""
