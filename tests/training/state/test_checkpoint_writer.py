"""Checkpoints that are written while training goes on, and processes killed while writing them."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests import warm
from tests.disks import small_disk
from tests.reporting import record
from tests.training.making import HERE
from tests.training.runs import assert_same, lines, options
from zoo.errors import UsageError
from zoo.overrides import override
from zoo.training.logging.jsonl import JsonlLogger
from zoo.training.state.checkpoint_writer import CheckpointWriter
from zoo.training.state.checkpoints import CheckpointMeta
from zoo.training.state.progress import list_checkpoints

__all__ = ["small_disk"]
PROGRAM = "tests.training.killed_program"
FAMILY = "gpt"
EVERY_STEP = {"max_steps": 6, "eval_steps": 6, "save_steps": 1, "save_total_limit": 1}


class SlowLog(JsonlLogger):
    """A log that is on the disk when the test says so."""

    def __init__(self, run: Path) -> None:
        super().__init__(run)
        self.may_flush = threading.Event()

    @override
    def flush(self) -> None:
        assert self.may_flush.wait(60)
        super().flush()


def test_a_checkpoint_has_the_values_of_its_step(tmp_path: Path) -> None:
    """The weights change at once, and in place, as an optimizer changes them."""
    writer = CheckpointWriter(tmp_path, HERE)
    weights = {"large": torch.ones(1 << 22), "transposed": torch.ones(3, 2).t()}
    for step in (1, 2):
        for weight in weights.values():
            weight.fill_(step)
        meta = CheckpointMeta(step=step)
        writer.save(meta, {"weights": weights}, None, keep=2, in_background=True)
    for weight in weights.values():
        weight.fill_(3)
    writer.close()
    for step, path in list_checkpoints(tmp_path).items():
        for name, tensor in load_file(path / "weights.safetensors").items():
            assert torch.equal(tensor, torch.full_like(weights[name], step))
    assert list(list_checkpoints(tmp_path)) == [1, 2]


def test_a_save_waits_for_the_one_before_it(tmp_path: Path) -> None:
    """Until the next one is written, the last one is there, however few are kept."""
    writer = CheckpointWriter(tmp_path, HERE)
    groups = {"weights": {"a": torch.ones(2)}}
    writer.save(CheckpointMeta(step=1), groups, None, keep=1, in_background=False)
    assert list(list_checkpoints(tmp_path)) == [1], "without a thread, it is written on return"
    log = SlowLog(tmp_path)
    writer.save(CheckpointMeta(step=2), groups, log, keep=1, in_background=True)
    third_save = threading.Thread(
        target=writer.save,
        args=(CheckpointMeta(step=3), groups, log),
        kwargs={"keep": 1, "in_background": True},
    )
    third_save.start()
    third_save.join(0.2)
    assert third_save.is_alive()
    assert list(list_checkpoints(tmp_path)) == [1]
    assert not writer.has_failed()
    log.may_flush.set()
    third_save.join(60)
    assert not third_save.is_alive()
    writer.close()
    log.close()
    assert list(list_checkpoints(tmp_path)) == [3]


def test_a_full_disk_is_an_error_of_the_next_save(small_disk: Path) -> None:
    """It is known as soon as the write has ended, and an earlier checkpoint is kept."""
    writer = CheckpointWriter(small_disk, HERE)
    small = {"weights": {"a": torch.ones(2)}}
    large = {"weights": {"a": torch.ones(1 << 20)}}
    writer.save(CheckpointMeta(step=1), small, None, keep=1, in_background=True)
    writer.save(CheckpointMeta(step=2), large, None, keep=1, in_background=True)
    deadline = time.monotonic() + 60
    while not writer.has_failed():
        assert time.monotonic() < deadline
    with pytest.raises(UsageError, match="No space left on device") as caught:
        writer.save(CheckpointMeta(step=3), small, None, keep=1, in_background=True)
    assert isinstance(caught.value.__cause__, OSError)
    writer.close()
    names = [path.name for path in (small_disk / "checkpoints").iterdir()]
    assert names == ["step-00000001"]


def test_a_full_disk_at_the_end_of_a_process_is_a_warning(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The error that ends the process is another one."""
    writer = CheckpointWriter(small_disk, HERE)
    large = {"weights": {"a": torch.ones(1 << 20)}}
    writer.save(CheckpointMeta(step=2), large, None, keep=1, in_background=True)
    writer.close()
    assert "the checkpoint of step 2 was not saved: cannot write" in caplog.text


@pytest.mark.usefixtures("shared_home")
@pytest.mark.parametrize(
    ("processes", "moments"),
    [
        (1, 2),
        pytest.param(1, 20, marks=pytest.mark.long),
        pytest.param(2, 10, marks=pytest.mark.long, id="FSDP"),
    ],
)
def test_a_process_that_is_killed_while_it_writes_loses_one_save(
    tmp_path: Path, processes: int, moments: int
) -> None:
    """Moments are spread over the function calls of the threads that write the third checkpoint."""
    command = ["pretrain", FAMILY, *options(**EVERY_STEP), "--device", "cpu", "-o"]
    if processes > 1:
        command.insert(2, "--fsdp")
    unbroken = tmp_path / "unbroken"
    done = warm.in_processes(processes, 3, 0, *command, unbroken, module=PROGRAM)
    assert done.returncode == 0, done.stderr
    calls = int(done.stdout.splitlines()[-1])
    assert calls > 100
    different_runs = []
    for number in range(moments):
        run = tmp_path / f"killed-{number}"
        moment = 1 + round(0.98 * (calls - 1) * number / (moments - 1))
        done = warm.in_processes(processes, 3, moment, *command, run, module=PROGRAM)
        assert done.returncode == -9, (moment, done.stderr)
        last_step = max(list_checkpoints(run))
        assert last_step in (2, 3), "the second is written before the third begins"
        resume = ["pretrain", "--resume", run, "--device", "cpu"]
        done = warm.in_processes(processes, *resume)
        assert done.returncode == 0, done.stderr
        assert f"is resumed at step {last_step} of 6" in done.stderr
        try:
            # The headers of torch's shards have their entries in any order.
            assert_same(unbroken, run, ignore=["checkpoints/*"] if processes > 1 else [])
            assert_same_shards(unbroken, run)
        except AssertionError as error:
            different_runs.append((moment, error))
        assert not list(run.glob("checkpoints/.*"))
        shutil.rmtree(run)
    if moments > 2:
        record("save", cases=moments, failures=len(different_runs))
    assert different_runs == []


ENDS_BEFORE_ITS_FIRST_SAVE = """
import os
import signal
import sys

from zoo.cli import main
from zoo.training.state.checkpoint_writer import CheckpointWriter


def end(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


if os.environ["RANK"] == "1":
    CheckpointWriter._begin_shards = end
main(sys.argv[1:])
"""


@pytest.mark.long
@pytest.mark.usefixtures("shared_home")
def test_a_process_that_ends_before_its_first_save_is_noticed_at_once(tmp_path: Path) -> None:
    """The group of the writing threads would wait for its address until ``--timeout``."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = ["pretrain", "--fsdp", FAMILY, *options(**EVERY_STEP), "--device", "cpu", "-o"]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = []
    for rank in range(2):
        ranks = {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}
        process = subprocess.Popen(
            [sys.executable, "-c", ENDS_BEFORE_ITS_FIRST_SAVE, *command, str(tmp_path / "run")],
            env={**environment, **ranks},
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
    first, second = processes
    try:
        assert second.wait(300) == -signal.SIGKILL
        _, stderr = first.communicate(timeout=60)
    finally:
        first.kill()
    assert first.returncode == 130, stderr
    assert f"(pid {second.pid})" in stderr


def assert_same_shards(first: Path, second: Path) -> None:
    """Compare the sharded tensors of the last checkpoints of two runs."""
    first_path = max(list_checkpoints(first).values())
    second_path = max(list_checkpoints(second).values())
    for path in first_path.glob("*/*.safetensors"):
        tensors = load_file(path)
        other_tensors = load_file(second_path / path.relative_to(first_path))
        assert tensors.keys() == other_tensors.keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor, other_tensors[name]), name


def test_the_state_names_the_length_of_the_log(tmp_path: Path) -> None:
    """A record that is written after the save does not belong to the checkpoint."""
    log = JsonlLogger(tmp_path)
    log.log({"step": 1})
    position = log.size()
    writer = CheckpointWriter(tmp_path, HERE)
    meta = CheckpointMeta(step=1, metrics_position=position, metrics_digest=log.digest())
    writer.save(meta, {"weights": {"a": torch.ones(2)}}, log, keep=1, in_background=True)
    log.log({"step": 2})
    writer.close()
    log.close()
    (path,) = list_checkpoints(tmp_path).values()
    assert json.loads((path / "state.json").read_bytes())["metrics_position"] == position
    assert lines(tmp_path) == 2
