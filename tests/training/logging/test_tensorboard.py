"""TensorBoard event files, read by TensorBoard, and their checksums."""

import re
from contextlib import closing
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing import event_accumulator, event_file_loader

from zoo.io.crc32c import crc32c, masked, unmasked
from zoo.io.protobuf import field, fields
from zoo.training.logging.tensorboard import TensorBoardLogger


def train(step: int, loss: float) -> dict[str, object]:
    return {
        "step": step,
        "split": "train",
        "loss": loss,
        "losses": {"masked": loss / 2},
        "metrics": {"accuracy": 0.25},
        "learning_rate": 1e-4,
        "gradient_norm": 2.0,
        "tokens": 4096 * step,
    }


def curves(run: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = event_accumulator.EventAccumulator(str(run), {event_accumulator.SCALARS: 0})
    accumulator.Reload()
    return {
        tag: [(point.step, point.value) for point in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_tensorboard_reads_the_scalars(tmp_path: Path) -> None:
    with closing(TensorBoardLogger(tmp_path)) as events:
        for step in (0, 1, 200, 1_000_000, 1 << 40):
            events.log(train(step, step * 0.5))
        events.log({"step": 200, "split": "validation", "loss": 3.5, "metrics": {"accuracy": 1}})
        events.log_performance({"step": 200, "tokens_per_second": 1e5, "mfu": 0.5, "seconds": 9.0})
    steps = [0, 1, 200, 1_000_000, 1 << 40]
    accumulator = curves(tmp_path)
    assert accumulator["train/loss"] == [(step, step * 0.5) for step in steps]
    assert accumulator["train/loss/masked"] == [(step, step * 0.25) for step in steps]
    assert accumulator["train/accuracy"] == [(step, 0.25) for step in steps]
    assert accumulator["train/gradient_norm"] == [(step, 2.0) for step in steps]
    assert [value for _, value in accumulator["train/learning_rate"]] == pytest.approx([1e-4] * 5)
    assert accumulator["validation/loss"] == [(200, 3.5)]
    assert accumulator["validation/accuracy"] == [(200, 1.0)]
    assert accumulator["speed/tokens_per_second"] == [(200, 1e5)]
    assert accumulator["speed/mfu"] == [(200, 0.5)]
    assert len(accumulator) == 9


def test_names_of_curves_are_text(tmp_path: Path) -> None:
    """Metrics of plugins may be called after labels of a data set."""
    names = {"f1 of a\x1b[1m|\n`": "f1 of a_x5c_x1b_x5b_1m_x7c_ _x60_", "f1 of é_1": "f1 of é_1"}
    with closing(TensorBoardLogger(tmp_path)) as events:
        metrics = dict.fromkeys(names, 0.5)
        events.log({"step": 1, "split": "validation", "metrics": metrics})
    tags = curves(tmp_path)
    assert tags.keys() == {f"validation/{name}" for name in names.values()}
    assert [tag for tag in tags if not re.fullmatch(r"[/\w.\- ]*", tag)] == [], "MLflow's rule"


def test_a_resumed_run_shows_no_stale_steps(tmp_path: Path) -> None:
    with closing(TensorBoardLogger(tmp_path)) as events:
        for step in range(10, 60, 10):
            events.log(train(step, 1.0))
    (first,) = tmp_path.iterdir()
    first.write_bytes(first.read_bytes()[:-7])  # as if killed while writing
    for _ in range(2):  # resumed twice from the same checkpoint
        with closing(TensorBoardLogger(tmp_path, step=20)) as events:
            for step in (30, 40):
                events.log(train(step, 2.0))
    assert curves(tmp_path)["train/loss"] == [(10, 1.0), (20, 1.0), (30, 2.0), (40, 2.0)]
    assert len(list(tmp_path.iterdir())) == 3


def test_times_are_kept(tmp_path: Path) -> None:
    with closing(TensorBoardLogger(tmp_path)) as events:
        events.log(train(1, 1.0))
    (path,) = tmp_path.iterdir()
    read = list(event_file_loader.EventFileLoader(str(path)).Load())
    assert read[0].file_version == "brain.Event:2"
    assert [event for event in read if not abs(event.wall_time - path.stat().st_mtime) < 60] == []


@given(st.binary(max_size=100))
def test_the_checksum_is_that_of_the_package(content: bytes) -> None:
    assert crc32c(content) == google_crc32c.value(content)
    assert unmasked(masked(crc32c(content))) == crc32c(content)


def test_the_checksum_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@given(st.integers(1, 1 << 28), st.integers(0, (1 << 64) - 1), st.binary(max_size=300))
def test_fields_come_back(number: int, value: int, content: bytes) -> None:
    assert list(fields(field(number, value) + field(number, content))) == [
        (number, value),
        (number, content),
    ]
