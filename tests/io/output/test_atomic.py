"""Atomic writing of directories and files, with failures at every step."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from zoo.errors import UsageError, ZooError
from zoo.io.output import atomic
from zoo.io.output.atomic import atomic_directory, atomic_write


def tree(folder: Path) -> dict[str, str]:
    """Return path -> content of all files below a directory."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else "/"
        for path in folder.rglob("*")
    }


def fill(staging: Path, text: str = "new") -> None:
    (staging / "sub").mkdir()
    (staging / "a").write_text(text)
    (staging / "sub" / "b").write_text(text)


DIGEST = json.dumps({"bytes": 3, "blake3": blake3(b"old").hexdigest()})
MANIFEST = f'{{"zoo": 1, "created_by": {{"plm-zoo": "1"}}, "files": {{"a": {DIGEST}}}}}'
NEW = {"out": "/", "out/a": "new", "out/sub": "/", "out/sub/b": "new"}
OLD = {"out": "/", "out/a": "old", "out/zoo.json": MANIFEST}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "work" / "out"


@pytest.fixture
def work(target: Path) -> Path:
    target.parent.mkdir()
    return target.parent


@pytest.fixture
def old(work: Path) -> Path:
    (work / "out").mkdir()
    (work / "out" / "a").write_text("old")
    (work / "out" / "zoo.json").write_text(MANIFEST)
    return work / "out"


def test_target_appears_when_complete(work: Path, target: Path) -> None:
    with atomic_directory(target) as staging:
        fill(staging)
        assert not target.exists()
        assert staging.parent == work  # a rename, not a copy
        assert staging.name.startswith(".")
    assert tree(work) == NEW


def test_permissions_of_a_new_directory(work: Path, target: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_directory(target):
            pass
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_permissions_of_files_are_those_of_the_umask(target: Path, mask: int, mode: int) -> None:
    """Some libraries write files that only their owner can read."""
    before = os.umask(mask)
    try:
        with atomic_directory(target) as staging:
            (staging / "sub").mkdir()
            for name, written in (("a", 0o600), ("sub/b", 0o666)):
                os.close(os.open(staging / name, os.O_CREAT | os.O_WRONLY, written))
    finally:
        os.umask(before)
    assert [(target / name).stat().st_mode & 0o777 for name in ("a", "sub/b")] == [mode, mode]


def test_a_relative_target_and_a_working_directory_that_changes(
    work: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(work)
    with atomic_directory(Path("out")) as staging:
        os.chdir(tmp_path)
        fill(staging)
    assert tree(work) == NEW


def test_missing_parents_are_created(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "p" / "q" / "out") as staging:
        fill(staging)
    assert tree(tmp_path / "p" / "q") == NEW


@pytest.mark.parametrize("error", [ValueError("x"), UsageError("x"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    with (
        pytest.raises(type(error)) as caught,
        atomic_directory(tmp_path / "p" / "q" / "out") as staging,
    ):
        fill(staging)
        raise error
    assert caught.value is error
    assert tree(tmp_path) == {}


def test_failure_keeps_parents_in_use(tmp_path: Path) -> None:
    with pytest.raises(ValueError), atomic_directory(tmp_path / "p" / "q" / "out"):
        (tmp_path / "p" / "theirs").write_text("x")
        raise ValueError
    assert tree(tmp_path) == {"p": "/", "p/theirs": "x"}


def test_an_existing_target_is_refused_before_any_work(old: Path, work: Path) -> None:
    with pytest.raises(UsageError, match=r"out exists; give --force"), atomic_directory(old):
        pytest.fail("the block must not run")
    assert tree(work) == OLD


def test_force_replaces_after_the_block(old: Path, work: Path, replacement: str) -> None:
    with atomic_directory(old, force=True) as staging:
        fill(staging)
        assert (old / "a").read_text() == "old"
    assert tree(work) == NEW


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_with_force_keeps_the_old_one(
    old: Path, work: Path, error: type[BaseException]
) -> None:
    with pytest.raises(error), atomic_directory(old, force=True) as staging:
        fill(staging)
        raise error
    assert tree(work) == OLD


def test_target_created_meanwhile_is_not_replaced(work: Path, target: Path) -> None:
    with pytest.raises(UsageError, match="out exists"), atomic_directory(target) as staging:
        fill(staging)
        target.mkdir()
        (target / "a").write_text("old")
    assert tree(work) == {"out": "/", "out/a": "old"}


def test_target_created_after_the_last_check_is_not_replaced(
    work: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename of another process comes between the check and ours."""
    check: Any = vars(atomic)["check_target"]
    calls = iter(range(9))

    def check_and_write(*arguments: Any, **settings: Any) -> None:
        check(*arguments, **settings)
        if next(calls) == 1:
            target.mkdir()
            (target / "theirs").write_text("theirs")

    monkeypatch.setattr(atomic, "check_target", check_and_write)
    with pytest.raises(UsageError, match="exists"), atomic_directory(target) as staging:
        (staging / "ours").write_text("ours")
    assert [path.name for path in target.iterdir()] == ["theirs"]
    assert sorted(path.name for path in work.iterdir()) == [target.name]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("link", [False, True])
def test_a_file_or_a_link_is_never_replaced(
    work: Path, target: Path, force: bool, link: bool
) -> None:
    (work / "elsewhere").mkdir()
    if link:
        target.symlink_to("elsewhere")
    else:
        target.touch()
    before = tree(work)
    message = "is a symbolic link" if link else "is not a directory"
    with (
        pytest.raises(UsageError, match=message),
        atomic_directory(target, force=force),
    ):
        pytest.fail("the block must not run")
    assert tree(work) == before


@contextlib.contextmanager
def interrupted_after(step: str, count: int) -> Iterator[None]:
    """Send SIGINT after the ``count``-th call of an ``os`` function."""
    calls = 0

    def profile(frame: object, event: str, function: object) -> None:
        nonlocal calls
        if event == "c_return" and function is getattr(os, step):
            calls += 1
            if calls == count:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
    assert calls == count, "the interrupt was never delivered"


@pytest.fixture(params=["in one step", "by two renames"])
def replacement(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The method by which a directory is replaced, which depends on the system."""
    if request.param == "by two renames":
        monkeypatch.setattr("zoo.io.output.atomic._exchange", lambda *_: False)
    return str(request.param)


@pytest.mark.parametrize(("renames", "remaining"), [(1, OLD), (2, NEW)])
def test_an_interrupt_between_the_renames_loses_nothing(
    old: Path, work: Path, renames: int, remaining: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zoo.io.output.atomic._exchange", lambda *_: False)
    with (
        pytest.raises(KeyboardInterrupt),
        interrupted_after("rename", renames),
        atomic_directory(old, force=True) as staging,
    ):
        fill(staging)
    assert tree(work) == remaining


@pytest.mark.parametrize("step", ["mkdir", "open", "rename", "unlink", "rmdir"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_interrupt_at_any_step_leaves_a_complete_directory(
    old: Path, work: Path, replacement: str, step: str, count: int
) -> None:
    with (
        contextlib.suppress(KeyboardInterrupt, AssertionError),  # the number of steps varies
        interrupted_after(step, count),
        atomic_directory(old, force=True) as staging,
    ):
        fill(staging)
    assert tree(work) in (OLD, NEW)


@pytest.mark.parametrize("syncs", [1, 2, 3])
def test_interrupt_during_fsync_leaves_nothing(tmp_path: Path, syncs: int) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        interrupted_after("fsync", syncs),
        atomic_directory(tmp_path / "p" / "out") as staging,
    ):
        fill(staging)
    assert tree(tmp_path) == {}


def test_a_parent_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for target in (tmp_path / "file" / "out", tmp_path / "file" / "deep" / "out"):
        with (
            pytest.raises(UsageError, match=r"cannot write .*out: Not a directory"),
            atomic_directory(target),
        ):
            pytest.fail("the block must not run")
    assert tree(tmp_path) == {"file": ""}


def test_too_long_name_removes_created_parents(tmp_path: Path) -> None:
    for target in (tmp_path / "p" / ("x" * 300) / "out", tmp_path / "p" / "q" / ("x" * 300)):
        with pytest.raises(UsageError, match="File name too long"), atomic_directory(target):
            pytest.fail("the block must not run")
        assert tree(tmp_path) == {}


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc here")
def test_file_system_without_directories() -> None:
    with (
        pytest.raises(UsageError, match="cannot write /proc/zoo"),
        atomic_directory(Path("/proc/zoo")),
    ):
        pytest.fail("the block must not run")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"cannot write .*out: No space left on device; nothing"),
        atomic_directory(tmp_path / "p" / "out") as staging,
    ):
        fill(staging)
        (staging / "weights").symlink_to("/dev/full")
        (staging / "weights").write_bytes(bytes(100_000))
    assert tree(tmp_path) == {}


def test_unreadable_source_is_not_reported_as_target(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError), atomic_directory(tmp_path / "out"):
        (tmp_path / "file" / "config.json").read_bytes()
    assert tree(tmp_path) == {"file": ""}


IN_ANOTHER_PROCESS = """
import os, resource, signal, sys
from pathlib import Path
from zoo.errors import ZooError
from zoo.io.output.atomic import atomic_directory, atomic_write
{prepare}
try:
    with atomic_directory(Path(sys.argv[1]), force=len(sys.argv) > 2) as staging:
        print("begun", flush=True)
        {work}
except ZooError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def start(target: Path, work: str, prepare: str = "", *options: str) -> "subprocess.Popen[str]":
    script = IN_ANOTHER_PROCESS.format(prepare=prepare, work=work)
    return subprocess.Popen(
        [sys.executable, "-c", script, str(target), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_file_size_limit(work: Path, target: Path) -> None:
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))"
    process = start(target, "(staging / 'weights').write_bytes(bytes(9000))", limit)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (UsageError.exit_code, "")
    assert output == f"begun\ncannot write {target}: File too large; nothing was left behind\n"
    assert tree(work) == {}


@pytest.mark.parametrize("options", [[], ["force"]])
def test_a_directory_without_write_permission(old: Path, work: Path, options: list[str]) -> None:
    drop = "import ctypes, struct\n"  # drop the capabilities by which root may write anywhere
    drop += "ctypes.CDLL(None).capset(struct.pack('Ii', 0x20080522, 0), bytes(24))"
    work.chmod(0o555)
    target = old if options else work / "other"
    process = start(target, "pass", drop if os.geteuid() == 0 else "", *options)
    output, errors = process.communicate(timeout=60)
    work.chmod(0o755)
    assert (process.returncode, errors) == (UsageError.exit_code, "")
    hint = "nothing was left behind; write to another place"
    assert output == f"cannot write {target}: Permission denied; {hint}\n"
    assert tree(work) == OLD


@pytest.mark.parametrize("existing", [False, True])
def test_ctrl_c(tmp_path: Path, existing: bool) -> None:
    target = tmp_path / "p" / "out"
    if existing:
        target.mkdir(parents=True)
        (target / "zoo.json").write_text(MANIFEST)
    before = tree(tmp_path)
    work = "(staging / 'half').write_text('x'); signal.pause()"
    process = start(target, work, "", *(["force"] if existing else []))
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    deadline = time.monotonic() + 30
    while not list(target.parent.glob(".out.*/half")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert tree(tmp_path) == before


def test_disk_that_becomes_full(small_disk: Path) -> None:
    target = small_disk / "out"
    with atomic_directory(target) as staging:
        (staging / "a").write_text("old")
        (staging / "zoo.json").write_text(MANIFEST)
    with (
        pytest.raises(UsageError, match="No space left on device"),
        atomic_directory(target, force=True) as staging,
        (staging / "weights").open("wb") as file,
    ):
        while True:
            file.write(bytes(100_000))
    assert tree(small_disk) == OLD


def test_a_disk_that_is_read_only(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with (
        pytest.raises(ZooError, match="Read-only file system"),
        atomic_directory(small_disk / "p/out"),
    ):
        pytest.fail("the block must not run")
    assert tree(small_disk) == {}


def test_a_mount_point_cannot_be_replaced(small_disk: Path, tmp_path: Path) -> None:
    (small_disk / "zoo.json").write_text(MANIFEST)
    with (
        pytest.raises(UsageError, match="busy"),
        atomic_directory(small_disk, force=True) as staging,
    ):
        fill(staging)
    assert tree(tmp_path) == {"disk": "/", "disk/zoo.json": MANIFEST}


def test_file_is_replaced_atomically(tmp_path: Path) -> None:
    path = tmp_path / "p" / "file"
    for content in (b"old", b"new"):
        atomic_write(path, content)
    assert tree(tmp_path) == {"p": "/", "p/file": "new"}


def test_unwritable_file_is_named_and_kept(small_disk: Path) -> None:
    path = small_disk / "file"
    atomic_write(path, b"old")
    with pytest.raises(OSError, match="No space left on device") as caught:
        atomic_write(path, bytes(2_000_000))
    assert caught.value.filename == str(path)
    assert tree(small_disk) == {"file": "old"}


def test_name_of_maximum_length(tmp_path: Path) -> None:
    target = tmp_path / ("\N{HIRAGANA LETTER A}" * 85)  # 255 bytes
    for _ in range(2):
        with atomic_directory(target, force=True) as staging:
            (staging / "zoo.json").write_text(MANIFEST)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
