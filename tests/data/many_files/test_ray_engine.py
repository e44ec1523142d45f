"""Jobs over many files on Ray. Ray takes half a minute to start on a busy machine."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.api.test_running_files import ROWS, contents, plain_runs, run, source, write_table
from tests.checkpoints import hub_checkpoint
from tests.inference.conftest import Small, small
from tests.warm import in_processes
from tests.warm import zoo as command
from zoo.api import Model
from zoo.data.many_files.ray_engine import RayOptions, require_cpus, require_ray, start_ray
from zoo.errors import SourceError, UsageError

__all__ = ["Small", "hub_checkpoint", "run", "small", "source"]
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
MINUTES = 8


@pytest.fixture
def model(small: Small) -> Model:
    return small("BertModel")[0]


@pytest.mark.parametrize(
    ("actors", "cpus_per_actor", "cpus", "remedy"),
    [
        (3, 1, [2], "give --actors 2"),
        (1, 4, [2, 2], "give --cpus-per-actor 2"),  # An actor is on one machine.
        (3, 3, [8, 2], "give --actors 2"),
        (1, 1, [], "give --cpus-per-actor 1"),
    ],
)
def test_actors_that_do_not_fit_are_refused(
    actors: int, cpus_per_actor: int, cpus: Sequence[int], remedy: str
) -> None:
    with pytest.raises(UsageError, match=remedy):
        require_cpus(RayOptions(actors, cpus_per_actor), cpus, "the machines have")
    # As many as the message says do fit.
    if "--actors" in remedy:
        fitting = RayOptions(int(remedy.split()[-1]), cpus_per_actor)
        require_cpus(fitting, cpus, "the machines have")


def test_an_engine_that_is_not_installed_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SourceError, match="--engine ray takes ray, which is not installed"):
        require_ray()


def test_a_job_on_an_engine_that_is_not_installed_has_exit_code_4(
    run: list[object], tmp_path: Path
) -> None:
    (tmp_path / "ray.py").write_text("raise ImportError")
    words = [*run, "--output", tmp_path / "out", "--engine", "ray"]
    done = command(*words, PYTHONPATH=str(tmp_path))
    assert done.returncode == 4, done.stderr
    expected = "error: --engine ray takes ray, which is not installed; pip install ray\n"
    assert (done.stdout, done.stderr) == ("", expected)
    assert not (tmp_path / "out").exists()


def test_options_of_an_engine_need_it(run: list[object], tmp_path: Path) -> None:
    done = command(*run, "--output", tmp_path / "out", "--actors", "2")
    assert done.returncode == 2 and "--actors is for --engine ray" in done.stderr
    assert done.stderr.count("\n") == 1


def test_too_many_actors_are_refused_before_ray_starts(run: list[object], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    done = command(*run, "--output", tmp_path / "out", "--engine", "ray", "--actors", "1000")
    assert done.returncode == 2, done.stderr
    assert "--actors 1000 with 1 CPUs each do not fit: this machine has" in done.stderr


def test_a_cluster_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(SourceError, match=f"no cluster of Ray answers at {address}: Conn"):
            start_ray(None)


@pytest.mark.long
def test_ray_that_does_not_start_shows_its_logs(tmp_path: Path) -> None:
    """Its processes cannot write into their folder."""
    pytest.importorskip("ray")
    blocked = tmp_path / "file"
    blocked.touch()
    code = (
        "import ray; from zoo.data.many_files.ray_engine import start_ray; "
        "from zoo.errors import SourceError\n"
        "try: start_ray(ray)\n"
        "except SourceError as error: print(error)"
    )
    environment = {**os.environ, "RAY_TMPDIR": str(blocked)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.startswith("Ray did not start: "), done.stderr
    assert f"its logs are in {blocked}" in done.stdout


def actor_processes(folder: Path) -> list[int]:
    """Return the processes of actors that run a file and work in a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes()
            if b"ray::_FileActor.run" in words and Path(os.readlink(path / "cwd")) == folder:
                found.append(int(path.name))
        except OSError:  # The process has ended, or belongs to somebody else.
            continue
    return found


@pytest.mark.long
def test_two_actors_of_which_one_is_killed(
    model: Model, run: list[object], source: Path, tmp_path: Path
) -> None:
    """Every row is there once, with the bytes of runs over single files."""
    pytest.importorskip("ray")
    write_table(source / "1.parquet", 1000, rows=20_000)
    out = tmp_path / "out"
    words = [*map(str, run), "--output", str(out), "--engine", "ray", "--actors", "2"]
    program = [sys.executable, "-m", "zoo", *words, "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(program, cwd=tmp_path, **pipes)
    end = time.monotonic() + 60 * MINUTES
    killed = 0
    while not killed and process.poll() is None and time.monotonic() < end:
        if (out / "1.parquet.part.json").exists():
            for number in actor_processes(tmp_path)[:1]:
                os.kill(number, signal.SIGKILL)
                killed = number
        time.sleep(0.02)
    printed, errors = process.communicate(timeout=60 * MINUTES)
    assert process.returncode == 0, errors
    assert killed, "no actor was killed while it wrote a file"
    value = json.loads(printed)
    assert value["files"] == {"total": 5, "written": 5, "skipped": 0, "remaining": 0}
    assert value["rows"] == 4 * ROWS + 20_000
    assert contents(out) == plain_runs(model, source, tmp_path / "plain", ".parquet")


CHANGING = """
from pathlib import Path

from zoo import cli
from zoo.data.many_files.folder import JobFolder

claim = JobFolder.claim


def claim_and_change(self, settings):
    jobs = claim(self, settings)
    with Path("lines", "e.jsonl").open("a") as file:
        file.write('{"text": "f"}\\n')
    return jobs


def main(arguments):
    JobFolder.claim = claim_and_change
    cli.main(arguments)
"""


@pytest.mark.long
def test_files_with_bad_rows_do_not_stop_the_others(
    run: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does a file that changes after the job began."""
    pytest.importorskip("ray")
    lines = tmp_path / "lines"
    lines.mkdir()
    for name, text in (("a", '"a"'), ("b", "3"), ("c", "null"), ("d", '"d"'), ("e", '"e"')):
        (lines / f"{name}.jsonl").write_text(f'{{"text": "x"}}\n{{"text": {text}}}\n')
    out = tmp_path / "out"
    (tmp_path / "changing.py").write_text(CHANGING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = [*run[:-1], lines, "--output", out, "--engine", "ray"]
    done = in_processes(1, *words, module="changing")
    assert done.returncode == 2, done.stderr
    assert "3 of 5 files have no output; correct them, and --resume" in done.stderr
    assert "b.jsonl:2: text" in done.stderr and "c.jsonl:2: text" in done.stderr
    assert "e.jsonl changed after the job began" in done.stderr
    assert sorted(contents(out)) == ["a.jsonl", "d.jsonl"]
