"""Of several processes, the main one speaks alone; all errors are reported."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.training.runs import TEXT, finish_in_two_processes, options, wait_until

pytestmark = pytest.mark.usefixtures("shared_home")


def errors(done: "subprocess.CompletedProcess[str]") -> list[str]:
    text = " ".join(done.stderr.split())  # messages are wrapped
    return [f"error: {part}" for part in text.split("error: ")[1:]]


@pytest.mark.long
def test_lines_are_those_of_one_process(tmp_path: Path) -> None:
    words = ["gpt", *options(max_steps=2, eval_steps=2), "--device", "cpu"]
    done = warm.in_processes(2, "pretrain", *words, "-o", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    shown = [line.partition(":")[0] for line in done.stderr.splitlines()]
    names = ["model", "data", "steps", "directory", "step 1 of 2", "step 2 of 2", "step 2"]
    assert [name for name in shown if name in names] == names
    assert done.stdout.splitlines()[0] == f"run: {tmp_path / 'run'}"
    assert len(done.stdout.splitlines()) == 3


@pytest.mark.by_default("changes1", "changes2")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"optimizer": {"learning_rate": -1.0}},
            "learning_rate is -1.0",
            marks=pytest.mark.long,  # found where an unknown size is
        ),
        ({"size": "huge"}, "gpt has no size 'huge'"),  # before there is a process group
        ({"global_batch_tokens": 192}, "3 rows a step do not split into 2 processes"),
        ({"data": {"paths": ["none.txt"]}}, "none.txt"),  # in the main process first
        ({"optimizer": {"learning_rate": 1e30}, "max_steps": 9}, "not a finite number"),
    ],
)
def test_an_error_is_reported_once(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    words = ["gpt", *options(**changes), "--device", "cpu", "-o", str(tmp_path / "run")]
    done = warm.in_processes(2, "pretrain", *words)
    assert done.returncode in (2, 3, 4)
    (error,) = errors(done)
    assert message in error


ALONE = """
import sys
from zoo.errors import UsageError
from zoo.training.setup import PretrainSetup
from zoo import cli

plan = PretrainSetup.train_dataloader

def broken(setup, dist, **options):
    if dist.rank == 1:
        raise UsageError("the disk of this machine is full")
    return plan(setup, dist, **options)

PretrainSetup.train_dataloader = broken

def main(arguments):
    cli.main(arguments)
"""


@pytest.mark.long
def test_an_error_of_another_process_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_program.py").write_text(ALONE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    words = ["gpt", *options(), "--device", "cpu", "-o", str(tmp_path / "run")]
    done = warm.in_processes(2, "pretrain", *words, module="broken_program")
    assert done.returncode != 0
    assert [e for e in errors(done) if e.startswith("error: the disk of this machine is full")]


ELSEWHERE = """
import os
from zoo import cli
from zoo.training.distributed import context, joining

if os.environ["RANK"] == "1":
    joining.socket.gethostname = lambda: "hostb"
    context.__version__ = os.environ.get("OTHER_VERSION", context.__version__)
    os.chdir(os.environ["OTHER_FOLDER"])
else:
    joining.socket.gethostname = lambda: "hosta"

def main(arguments):
    cli.main(arguments)
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a second host; the first one's is the current one."""
    (tmp_path / "program_of_two_hosts.py").write_text(ELSEWHERE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.setenv("OTHER_FOLDER", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def test_hosts_with_another_version_are_refused(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_VERSION", "9.9")
    words = ["gpt", *options(), "--device", "cpu", "-o", "run"]
    done = warm.in_processes(2, "pretrain", *words, module="program_of_two_hosts")
    assert done.returncode == 2
    (error,) = errors(done)
    assert "the hosts have different versions: zoo is" in error
    assert "on hosta, 9.9 on hostb" in error


@pytest.mark.long
@pytest.mark.parametrize("command", ["pretrain", "finetune"])
def test_hosts_with_other_data_are_refused(elsewhere: Path, tmp_path: Path, command: str) -> None:
    text = TEXT.read_text()[:20_000]
    for folder, ending in ((tmp_path, "here"), (elsewhere, "there")):
        (folder / "text.txt").write_text(f"{text} {ending}")
        rows = [f"a {ending} {row},{row % 2}" for row in range(16)]
        (folder / "table.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    if command == "pretrain":
        data = {"paths": ["text.txt"], "eval_paths": ["text.txt"]}
        words = ["gpt", *options(data=data)]
        name = "the corpus"
    else:
        words = ["bert", "--size", "tiny", "--task", "text-classification"]
        words += ["--train", "table.csv"]
        name = "table.csv"
    words += ["--device", "cpu", "-o", str(tmp_path / "run")]
    done = warm.in_processes(2, command, *words, module="program_of_two_hosts")
    assert done.returncode == 2, done.stderr
    (error,) = errors(done)
    difference = f"different data: {name} is [0-9a-f]{{16}} on hosta, [0-9a-f]{{16}} on hostb"
    assert re.search(difference, error)
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_resume_in_another_number_of_processes_says_what_it_is(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    words = ["gpt", *options(max_steps=2), "-o", run]
    finish_in_two_processes("pretrain", *words, "--max-time", "0.001s")
    done = warm.zoo("pretrain", "--resume", run, "--device", "cpu")
    line = f"{run} began with 2 processes and goes on with 1: each step has the same rows"
    assert done.returncode == 0 and line in done.stderr
    again = warm.zoo("pretrain", "--resume", run, "--device", "cpu")
    assert again.returncode == 0


@pytest.mark.long
def test_ctrl_c_is_answered_once(tmp_path: Path) -> None:
    long = {"max_steps": 10_000, "save_steps": 10_000, "logging_steps": 1}
    words = ["gpt", *options(**long), "--device", "cpu", "-o", str(tmp_path / "run")]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    launcher += ["--signals-to-handle", "SIGTERM,SIGINT,SIGUSR1", "-m", "zoo", "pretrain"]
    with subprocess.Popen([*launcher, *words], stderr=subprocess.PIPE, text=True) as process:
        log = tmp_path / "run/metrics.jsonl"
        wait_until(lambda: log.exists() and log.stat().st_size > 0, process)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    assert stderr.count("error: interrupted; step") == 1, stderr
    assert "another process" not in stderr
