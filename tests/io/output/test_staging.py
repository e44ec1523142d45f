"""Removal of stale staging paths; those of running processes are kept."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.io.output.atomic import atomic_directory, atomic_write
from zoo.io.output.staging import discard, remove_stale_staging

DIRECTORY = """
import sys, time
from pathlib import Path
import zoo.io.output.atomic as atomic
{prepare}
with atomic.atomic_directory(Path(sys.argv[1]), force=True) as staging:
    (staging / "zoo.json").write_text('{{"zoo": 1, "created_by": "new"}}')
    {work}
"""
WAIT = "print(flush=True); time.sleep(60)"
KILL = "__import__('os').kill(0, 9)"
OLD = '{"zoo": 1, "created_by": "old"}'


def start(target: Path, work: str, prepare: str = "") -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", DIRECTORY.format(work=work, prepare=prepare), str(target)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_stale_staging_is_removed_by_the_next_process(tmp_path: Path) -> None:
    process = start(tmp_path / "out", WAIT)
    staged = names(tmp_path)
    assert len(staged) == 2
    assert [name for name in staged if not name.startswith(".out.zoo-")] == []
    process.kill()
    process.wait()
    with atomic_directory(tmp_path / "out"):
        assert not set(staged) & set(names(tmp_path))
    assert names(tmp_path) == ["out"]


def test_staging_of_a_running_process_is_kept(tmp_path: Path) -> None:
    process = start(tmp_path / "out", WAIT)
    staged = names(tmp_path)
    try:
        remove_stale_staging(tmp_path)
        assert names(tmp_path) == staged
        with atomic_directory(tmp_path / "out"):
            pass
        assert names(tmp_path) == [*staged, "out"]
    finally:
        process.kill()
        process.wait()
    remove_stale_staging(tmp_path)
    assert names(tmp_path) == ["out"]


def test_staging_of_this_process_is_kept(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "a") as first, atomic_directory(tmp_path / "b") as second:
        remove_stale_staging(tmp_path)
        assert first.is_dir() and second.is_dir()
    assert names(tmp_path) == ["a", "b"]


TWO_RENAMES = """
import os
from zoo.io.output.staging import Path
atomic._exchange = lambda *_: False
rename, calls = Path.rename, []
def counted(self, target):
    calls.append(target)
    if len(calls) == {number}:
        os.kill(0, 9)
    return rename(self, target)
Path.rename = counted
"""


@pytest.mark.parametrize(("number", "content"), [(1, "old"), (2, "old")])
def test_a_kill_between_the_renames_loses_nothing(
    tmp_path: Path, number: int, content: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "zoo.json").write_text(OLD)
    process = start(tmp_path / "out", "pass", TWO_RENAMES.format(number=number))
    assert process.wait() == -signal.SIGKILL
    assert (tmp_path / "out").exists() == (number == 1)
    remove_stale_staging(tmp_path)
    assert names(tmp_path) == ["out"]
    assert content in (tmp_path / "out" / "zoo.json").read_text()


@pytest.mark.parametrize("call", ["fsync", "rename", "unlink", "rmdir"])
def test_kill_at_a_system_call_leaves_one_version(tmp_path: Path, call: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "zoo.json").write_text(OLD)
    prepare = f"import os; os.{call} = lambda *_, **__: os.kill(0, 9)"
    assert start(tmp_path / "out", "pass", prepare).wait() in (0, -signal.SIGKILL)
    remove_stale_staging(tmp_path)
    assert names(tmp_path) == ["out"]
    expected = "old" if call == "fsync" else "new"
    assert expected in (tmp_path / "out" / "zoo.json").read_text()


@pytest.mark.parametrize(
    "name",
    [".out.original", ".out.settings", ".out.zoo-1234567", ".out.zoo-notahexa", "out.zoo-12345678"],
)
def test_similar_name_is_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "file").write_text("x")
    with atomic_directory(tmp_path / "out"):
        pass
    assert (tmp_path / name / "file").read_text() == "x"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    (tmp_path / ".out.zoo-12345678").symlink_to("precious")
    (tmp_path / ".out.zoo-12345678.old").symlink_to("precious")
    remove_stale_staging(tmp_path)
    assert (tmp_path / "precious" / "file").read_text() == "x"


def test_a_stale_file_is_removed_by_the_next_write(tmp_path: Path) -> None:
    (tmp_path / ".file.zoo-12345678").write_text("half")
    (tmp_path / ".file.zoo-12345678.lock").touch()
    atomic_write(tmp_path / "file", b"whole")
    assert names(tmp_path) == ["file"]


def test_a_directory_is_discarded(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()
    discard(tmp_path / "a")
    assert names(tmp_path) == []


def test_concurrent_processes_keep_each_others_staging(tmp_path: Path) -> None:
    """Several processes write to one directory, and remove stale paths in it."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from zoo.io.output.atomic import atomic_write\n"
        "for k in range(100):\n"
        "    atomic_write(Path(sys.argv[1], f'{sys.argv[2]}-{k}'), bytes(10))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(k)], stderr=subprocess.PIPE) for k in range(4)]
    assert [process.communicate()[1] for process in processes] == [b""] * 4
    assert len(names(tmp_path)) == 400
