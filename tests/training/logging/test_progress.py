"""The lines and the bar of a run, with and without a terminal."""

import logging
import os
import pty
import subprocess
import sys
from typing import Any

import pytest

from tests.notebooks import shown_html
from zoo.training.logging.progress import TrainingProgress, figures

PROGRAM = """
import sys
from zoo.cli.output import prepare
from zoo.training.logging.progress import TrainingProgress

prepare()
progress = TrainingProgress(2000, weights={"masked": 1.0, "pairs": 1.0})
with progress.shown():
    speed = {"tokens_per_second": 1234.6, "mfu": 0.5}
    progress.log({"step": 1000, "split": "train", "loss": 2.5}, speed)
    losses = {"masked": 1.25, "pairs": 0.25}
    progress.log({"step": 1000, "split": "validation", "loss": 1.5, "losses": losses}, {})
    one = {"losses": {"masked": 1}, "metrics": {"b": 2}}
    progress.log({"step": 2000, "split": "validation", "loss": 1, **one}, {})
"""
LINES = [
    "step 1,000: validation loss 1.500, masked 1.250, pairs 0.250",
    "step 2,000: validation loss 1.000, b 2.000",
]


def test_without_a_terminal_there_are_lines() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    first, *rest = done.stderr.splitlines()
    assert first.startswith("step 1,000 of 2,000: loss 2.500, 1,235 tokens/s, MFU 50.0%, ")
    assert first.endswith(" s left")
    assert rest == LINES and done.stdout == "" and done.returncode == 0


@pytest.mark.parametrize("columns", [100, 80])
def test_on_a_terminal_there_is_a_bar_below_the_lines(columns: int) -> None:
    ours, theirs = pty.openpty()
    setting = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}
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


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_lines_are_those_of_the_first_and_last_step_and_every_half_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Steps take 10 s; every fifth is logged."""
    clock = Clock()
    progress = TrainingProgress(12, clock=clock)
    with caplog.at_level(logging.INFO, "zoo"), progress.shown():
        for step in range(1, 13):
            clock.now += 10
            record: dict[str, Any] = {"loss": float(step)}
            if step % 5 == 0 or step == 12:
                progress.log({**record, "step": step, "split": "train"}, {})
            else:
                progress.step(step, lambda now=record: now, dict)  # type: ignore[misc]
    assert caplog.messages == [
        "step 1 of 12: loss 1.000",
        "this takes about 2 min 0 s",
        "step 4 of 12: loss 4.000, 1 min 20 s left",
        "step 7 of 12: loss 7.000, 50.0 s left",
        "step 10 of 12: loss 10.000, 20.0 s left",
        "step 12 of 12: loss 12.000",
    ]


def test_steps_of_a_resumed_run_give_the_time_that_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    progress = TrainingProgress(1000, 990, clock=clock)
    with caplog.at_level(logging.INFO, "zoo"), progress.shown():
        progress.step(991, lambda: {"loss": 1.0}, dict)
        clock.now += 40
        progress.step(994, lambda: {"loss": 1.0}, lambda: {"tokens_per_second": 5.0})
    assert caplog.messages == [
        "step 991 of 1,000: loss 1.000",
        "step 994 of 1,000: loss 1.000, 5 tokens/s, 1 min 0 s left",
        "this takes about 1 min 40 s",
    ]


@pytest.mark.parametrize(
    ("record", "weights", "shown"),
    [
        ({"loss": 2.0, "losses": {"a": 2.0}}, {"a": 1.0}, "loss 2.000"),
        ({"loss": 6.0, "losses": {"a": 2.0}}, {"a": 3.0}, "loss 2.000"),
        (
            {"loss": 3.0, "losses": {"a-b": 1.0, "c": 2.0}},
            {"a-b": 1.0, "c": 1.0},
            "loss 3.000 a-b 1.000 c 2.000",
        ),
        (  # of ELECTRA, with the weights of the released code
            {"loss": 41.0, "losses": {"masked-lm": 6.5, "replaced-token-detection": 0.69}},
            {"masked-lm": 1.0, "replaced-token-detection": 50.0},
            "masked-lm 6.500 replaced-token-detection 0.690",
        ),
        (  # while only the generator is trained
            {"loss": 6.5, "losses": {"masked-lm": 6.5, "replaced-token-detection": 0.0}},
            {"masked-lm": 1.0, "replaced-token-detection": 50.0},
            "loss 6.500",
        ),
    ],
)
def test_terms_are_shown_without_their_weights(
    record: dict[str, Any], weights: dict[str, float], shown: str
) -> None:
    assert " ".join(" ".join(pair) for pair in figures(record, weights, "loss")) == shown


def test_two_metrics_are_shown_and_that_of_the_best_checkpoint_first() -> None:
    record = {"loss": 1.0, "metrics": {"accuracy": 0.5, "f1": 0.25, "matthews_correlation": 0.125}}
    shown = [" ".join(pair) for pair in figures(record, {}, "matthews_correlation")]
    assert shown == ["loss 1.000", "matthews correlation 0.125", "accuracy 0.500"]


CELL = """
import time
import zoo.io.progress as module
from zoo.training.logging.progress import TrainingProgress
module.DELAY_SECONDS = module.REFRESH_SECONDS = 0.01
bar = TrainingProgress(8, done=2)
with bar.shown():
    bar.step(3, lambda: {"loss": 1.0}, dict)
    bar.log({"step": 4, "split": "train", "loss": 1.0}, {})
    bar.log({"step": 4, "split": "validation", "loss": 1.0}, {})
    time.sleep(0.3)
"""


@pytest.mark.long  # tests/io/test_progress.py shows such a bar
def test_in_a_notebook_there_is_a_bar_of_the_steps() -> None:
    pages = shown_html(CELL)
    assert len(pages) > 2 and pages[-1] == ""
    bar = '<progress value="2" max="6"></progress>'
    assert pages[-2].startswith(f"{bar} training  2 of 6 steps")
