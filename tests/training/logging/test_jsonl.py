"""The JSON Lines log: writing, reading, and truncation after a killed process."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.errors import VerificationError
from zoo.training.logging.jsonl import (
    FIELDS,
    METRICS_FILE,
    PERFORMANCE_FILE,
    JsonlLogger,
    read_jsonl,
)


def record(step: int, loss: float = 0.1) -> dict[str, object]:
    return {"step": step, "split": "train", "loss": loss, "losses": {"b": loss, "a": 1e-9}}


def test_a_line_is_json_with_its_keys_in_one_order(tmp_path: Path) -> None:
    record = {name: k for k, name in enumerate(FIELDS)}
    with JsonlLogger(tmp_path) as journal:
        journal.log(dict(reversed(record.items())))
    lines = (tmp_path / METRICS_FILE).read_bytes()
    assert lines.endswith(b"}\n") and lines.count(b"\n") == 1
    assert list(json.loads(lines)) == list(FIELDS)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, x: float) -> None:
    run = tmp_path_factory.mktemp("run")
    with JsonlLogger(run) as journal:
        journal.log(record(1, x))
    (back,) = read_jsonl(run)
    assert back["loss"] == x and math.copysign(1, back["loss"]) == math.copysign(1, x)
    assert list(back["losses"]) == ["b", "a"]


def test_performance_is_logged_to_its_own_file(tmp_path: Path) -> None:
    with JsonlLogger(tmp_path) as journal:
        journal.log(record(1))
        journal.log_performance({"step": 1, "seconds": 2.5})
        journal.truncate(0)
    assert read_jsonl(tmp_path) == []
    assert read_jsonl(tmp_path, PERFORMANCE_FILE) == [{"step": 1, "seconds": 2.5}]


@pytest.mark.parametrize("bad", [{"step": 1, "clock": 2}, {"step": 1, "loss": math.inf}])
def test_unknown_keys_and_nonfinite_numbers_are_errors(
    tmp_path: Path, bad: dict[str, float]
) -> None:
    with JsonlLogger(tmp_path) as journal:
        with pytest.raises(ValueError, match=r"clock|JSON"):
            journal.log(bad)
        assert journal.size() == 0


def test_no_log_yet_is_an_empty_one(tmp_path: Path) -> None:
    assert read_jsonl(tmp_path) == [] == read_jsonl(tmp_path, PERFORMANCE_FILE)


def test_a_torn_last_line_is_left_out_and_removed(tmp_path: Path) -> None:
    with JsonlLogger(tmp_path) as journal:
        journal.log(record(1))
    for name in (METRICS_FILE, PERFORMANCE_FILE):
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"step": 2')
    assert [line["step"] for line in read_jsonl(tmp_path)] == [1]
    assert read_jsonl(tmp_path, PERFORMANCE_FILE) == []
    with JsonlLogger(tmp_path) as journal:
        journal.log(record(2))
        journal.log_performance({"step": 2})
    assert [line["step"] for line in read_jsonl(tmp_path)] == [1, 2]
    assert read_jsonl(tmp_path, PERFORMANCE_FILE) == [{"step": 2}]


@pytest.mark.parametrize("damage", [b'{"step": ', b"[1]", b"", b"\xff\xfe", b"\0" * 9])
def test_a_damaged_line_is_named(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / METRICS_FILE).write_bytes(b'{"step": 1}\n' + damage + b'\n{"step": 3}\n')
    with pytest.raises(VerificationError, match=r"metrics\.jsonl, line 2 is damaged"):
        read_jsonl(tmp_path)


def test_a_resumed_log_equals_an_unbroken_one(tmp_path: Path) -> None:
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    broken.mkdir()
    whole.mkdir()
    with JsonlLogger(whole) as journal:
        for step in range(6):
            journal.log(record(step, math.sqrt(step)))
    with JsonlLogger(broken) as journal:
        for step in range(3):
            journal.log(record(step, math.sqrt(step)))
        position = journal.size()
        for step in range(3, 5):
            journal.log(record(step, math.sqrt(step)))
    for last in (4, 6):  # resumed twice from the same checkpoint
        with JsonlLogger(broken) as journal:
            journal.truncate(position)
            assert journal.size() == position
            for step in range(3, last):
                journal.log(record(step, math.sqrt(step)))
    assert (broken / METRICS_FILE).read_bytes() == (whole / METRICS_FILE).read_bytes()


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_log_of_another_run_is_not_cut(tmp_path: Path, shift: int) -> None:
    with JsonlLogger(tmp_path) as journal:
        journal.log(record(1))
        end = journal.size()
        with pytest.raises(VerificationError, match="not the log that the checkpoint goes with"):
            journal.truncate(end + shift)
        assert journal.size() == end


def test_records_survive_sigkill(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from zoo.training.logging.jsonl import *\n"
        "journal = JsonlLogger(Path(sys.argv[1]))\n"
        "for step in range(100): journal.log({'step': step, 'split': 'train'})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [record["step"] for record in read_jsonl(tmp_path)] == list(range(100))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk at hand")
def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    with JsonlLogger(tmp_path) as journal:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, journal._log)
        os.close(full)
        with pytest.raises(OSError, match="No space left"):
            journal.log(record(1))
