"""The process that loads pickles: what it can no longer do, and what becomes of one that fails."""

import contextlib
import dataclasses
import os
import platform
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.formats.pickles import FLOATS, dictionary, pickled, tensor, text, zipped
from zoo.errors import UsageError, VerificationError
from zoo.formats import TensorInfo
from zoo_converters import sandbox, zoo_formats
from zoo_converters.loader import VERSION
from zoo_converters.sandbox import Extracted, Limits
from zoo_converters.syscalls import ALLOW, NO_SUCH_CALL, NOT_PERMITTED, assemble
from zoo_converters.torch_file import Contents, inspect

BIN = zoo_formats()[1]
HAS_FILTER = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")

PROBE = """
import ctypes, errno, os, resource, shutil, signal, socket, subprocess, sys, tempfile, threading
from pathlib import Path
from zoo_converters.confine import forbid_python, limit_resources
from zoo_converters.syscalls import forbid_system_calls
libc = ctypes.CDLL(None, use_errno=True)
victim, new = sys.argv[1].encode(), sys.argv[2].encode()

def tried(*actions):
    for number, action in enumerate(actions):
        try:
            result = action()
        except Exception as error:
            print(number, type(error).__name__)
        else:
            print(number, result)

"""


def probe(folder: Path, script: str) -> tuple[list[str], int]:
    """Run a script in a process of its own, beside a file that it may attack.

    Returns:
        what it printed, and its exit status.
    """
    victim, new = folder / "victim", folder / "new"
    victim.write_text("unharmed")
    done = subprocess.run(
        [sys.executable, "-c", PROBE + script, str(victim), str(new)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert victim.read_text() == "unharmed"
    assert [path.name for path in folder.iterdir()] == ["victim"]
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines(), done.returncode


def test_python_code_cannot_reach_out(tmp_path: Path) -> None:
    output, status = probe(
        tmp_path,
        """
forbid_python()
tried(
    lambda: os.system(b"touch " + new),
    lambda: subprocess.run(["touch", new]),
    lambda: os.posix_spawn("/bin/sh", ["sh", "-c", b"touch " + new], {}),
    lambda: os.execv("/bin/sh", ["sh", "-c", b"touch " + new]),
    lambda: os.fork(),
    lambda: socket.socket().connect(("127.0.0.1", 9)),
    lambda: socket.getaddrinfo("localhost", 80),
    lambda: open(new, "w"),
    lambda: open(victim, "a"),
    lambda: Path(os.fsdecode(new)).write_text("x"),
    lambda: os.open(new, os.O_CREAT | os.O_WRONLY),
    lambda: tempfile.mkdtemp(dir=os.path.dirname(new)),
    lambda: os.remove(victim),
    lambda: os.rename(victim, new),
    lambda: os.truncate(victim, 0),
    lambda: os.chmod(victim, 0),
    lambda: os.symlink(victim, new),
    lambda: os.kill(os.getppid(), 0),
    lambda: shutil.rmtree(os.path.dirname(new)),
    lambda: ctypes.CDLL("libc.so.6"),
)
print(open(victim).read(), os.listdir(os.path.dirname(victim)))
os.fdopen(1, "w").write("written to an open file")
""",
    )
    assert output == [
        *(f"{number} PermissionError" for number in range(20)),
        "unharmed [b'victim']",
        "written to an open file",
    ]
    assert status == 0


@pytest.mark.skipif(not HAS_FILTER, reason="the kernel's filter is for Linux, x86-64 and ARM64")
def test_native_code_cannot_either(tmp_path: Path) -> None:
    output, status = probe(
        tmp_path,
        """
import numpy as np
print(forbid_system_calls())
O_WRONLY, O_CREAT, AT_FDCWD = 1, 0o100, -100
tried(
    lambda: libc.socket(2, 1, 0),
    lambda: libc.socketpair(1, 1, 0, (ctypes.c_int * 2)()),
    lambda: libc.open(new, O_WRONLY | O_CREAT, 0o600),
    lambda: libc.openat(AT_FDCWD, victim, O_WRONLY),
    lambda: libc.creat(new, 0o600),
    lambda: libc.unlink(victim),
    lambda: libc.rename(victim, new),
    lambda: libc.mkdir(new, 0o700),
    lambda: libc.symlink(victim, new),
    lambda: libc.truncate(victim, 0),
    lambda: libc.chmod(victim, 0),
    lambda: libc.execv(b"/bin/true", (ctypes.c_char_p * 2)(b"true", None)),
    lambda: libc.fork(),
    lambda: libc.kill(os.getppid(), 0),
    lambda: libc.syscall(425, 1, ctypes.create_string_buffer(120)),  # io_uring_setup
    lambda: libc.system(b"touch " + new) != 0,
    lambda: libc.open(victim, 0) > 2,
)
threads = [threading.Thread(target=print, args=("a thread",)) for _ in range(2)]
for thread in threads:
    thread.start()
    thread.join()
print(open(victim).read(), (np.ones((50, 50)) @ np.ones((50, 50))).sum())
""",
    )
    assert output == [
        "True",
        *(f"{number} -1" for number in range(15)),
        "15 True",
        "16 True",
        "a thread",
        "a thread",
        "unharmed 125000.0",
    ]
    assert status == 0


def test_it_cannot_take_more_than_it_is_given(tmp_path: Path) -> None:
    output, status = probe(
        tmp_path,
        """
out = tempfile.TemporaryFile()
limit_resources(memory=100 << 20, output=10000, seconds=1)
tried(
    lambda: len(bytearray(50 << 20)),
    lambda: out.write(bytes(9000)) and out.flush(),
    lambda: out.write(bytes(9000)) and out.flush(),
    lambda: resource.getrlimit(resource.RLIMIT_CORE),
    lambda: len(bytearray(200 << 20)),
)
sys.stdout.flush()
while True:
    pass
""",
    )
    expected = ["0 52428800", "1 None", "2 OSError", "3 (0, 0)", "4 MemoryError"]
    assert output == expected if sys.platform == "linux" else output[:4] == expected[:4]
    assert status in (-signal.SIGXCPU, -signal.SIGKILL)


@pytest.mark.parametrize(
    ("column", "architecture", "calls"),
    [
        (0, 0xC000003E, {"read": 0, "openat": 257, "socket": 41, "execve": 59, "clone": 56}),
        (1, 0xC00000B7, {"read": 63, "openat": 56, "socket": 198, "execve": 221, "clone": 220}),
    ],
)
def test_the_filter_of_either_machine(
    column: int, architecture: int, calls: dict[str, int]
) -> None:
    """A filter for a machine that this is not, run by hand."""
    program = assemble(column, architecture)

    def answer(number: int, *arguments: int, machine: int = architecture) -> int:
        given = struct.pack("=IIQ6Q", number, machine, 0, *(arguments + (0,) * 6)[:6])
        at = loaded = 0
        while True:
            code, then, otherwise, value = struct.unpack_from("=HBBI", program, 8 * at)
            at += 1
            if code == 0x20:
                (loaded,) = struct.unpack_from("=I", given, value)
            elif code == 0x06:
                return int(value)
            else:
                met = loaded == value if code == 0x15 else bool(loaded & value)
                at += then if met else otherwise

    write, create, thread = os.O_WRONLY, os.O_CREAT, 0x10000
    assert answer(calls["read"], 3, 0x41, 0x41) == ALLOW
    assert answer(calls["read"], machine=0x40000003) == NOT_PERMITTED
    assert answer(calls["read"] | 0x40000000) == NOT_PERMITTED
    assert answer(calls["openat"], 0, 0, os.O_RDONLY | os.O_CLOEXEC) == ALLOW
    assert answer(calls["openat"], 0, 0, write) == NOT_PERMITTED
    assert answer(calls["openat"], 0, 0, create) == NOT_PERMITTED
    assert answer(calls["socket"]) == answer(calls["execve"]) == NOT_PERMITTED
    assert answer(calls["clone"], thread | 0x100) == ALLOW
    assert answer(calls["clone"], 17) == NOT_PERMITTED
    assert answer(435, thread) == NO_SUCH_CALL


@pytest.fixture
def contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Contents:
    """A file that is in order; temporary files go to ``tmp_path / "scratch"``."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    torch.save({"a": torch.arange(2_000_000.0)}, tmp_path / "pytorch_model.bin")
    return inspect(tmp_path / "pytorch_model.bin")


def children() -> set[int]:
    """The processes that this one has started and not yet waited for."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state = path.read_text().rpartition(")")[2].split()
            if int(state[1]) == os.getpid():
                found.add(int(path.parent.name))
    return found


def refused(contents: Contents, says: str, limits: Limits | None = None) -> None:
    """Extract, and expect one line, no process and no file left behind."""
    before = children()
    with pytest.raises(VerificationError) as caught:
        Extracted([contents], limits)
    line = str(caught.value)
    assert line.startswith(f"{contents.path}: ")
    assert says in line
    assert "\n" not in line
    assert len(line) < 500
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    assert children() <= before


def test_limits_are_what_the_file_needs(contents: Contents) -> None:
    extracted = Extracted([contents])
    assert extracted.reader.read("a")[-1] == 1_999_999
    extracted.close()


def test_too_little_memory(contents: Contents) -> None:
    limits = dataclasses.replace(Limits.of([contents]), memory=4 << 20)
    refused(contents, "needs more than 4 MiB of memory", limits)


def test_too_little_time(contents: Contents) -> None:
    limits = dataclasses.replace(Limits.of([contents]), seconds=0)
    refused(contents, "took more than 0 s and was stopped", limits)


def test_a_file_larger_than_it_may_write(contents: Contents) -> None:
    limits = dataclasses.replace(Limits.of([contents]), output=1 << 20)
    refused(contents, "File too large", limits)


def test_other_tensors_than_the_scan_saw(contents: Contents) -> None:
    other = dataclasses.replace(contents, tensors={"a": TensorInfo("I32", (2_000_000,))})
    refused(other, "a is not the tensor that its pickle describes")
    refused(dataclasses.replace(contents, tensors={"b": TensorInfo("F32", (2,))}), "KeyError: 'b'")


def test_a_file_that_changes_after_the_scan(contents: Contents, tmp_path: Path) -> None:
    mark = tmp_path / "harm"
    program = b"cposix\nsystem\n(" + text(f"touch {mark}") + b"tR"
    contents.path.write_bytes(zipped(pickled(program)))
    refused(contents, "was refused by torch: UnpicklingError")
    assert not mark.exists()
    contents.path.unlink()
    refused(contents, "was refused by torch: FileNotFoundError")


def test_a_process_that_dies(contents: Contents, monkeypatch: pytest.MonkeyPatch) -> None:
    boot = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    monkeypatch.setattr(sandbox, "BOOT", boot)
    refused(contents, "ended with SIGSEGV")
    monkeypatch.setattr(sandbox, "BOOT", "raise SystemExit('what\\nnow')")
    refused(contents, "ended with status 1: now")


def test_a_process_that_hands_back_something_else(
    contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "BOOT", "")
    with pytest.raises(VerificationError, match="it has 0 bytes"):
        Extracted([contents])
    path = contents.path.with_name("other.safetensors")
    save_file({"a": torch.zeros(3)}, path)
    copy = (
        f"import json, sys; job = json.load(sys.stdin); data = open({str(path)!r}, 'rb').read()\n"
    )
    copy += "open(job['files'][0]['output'], 'wb').write(data)\n"
    monkeypatch.setattr(sandbox, "BOOT", copy)
    refused(contents, "torch finds other tensors in it than its pickle describes")


def test_a_torch_that_is_too_old(contents: Contents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "BOOT", f"print('2.9.1+cpu'); raise SystemExit({VERSION})")
    with pytest.raises(UsageError, match=r"torch 2\.9\.1\+cpu cannot .*pip install -U"):
        Extracted([contents])


def test_the_process_gets_no_secrets_and_no_folder(
    contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    look = "import os; print(sorted(os.environ), os.getcwd() == '/'); raise SystemExit(10)"
    monkeypatch.setattr(sandbox, "BOOT", look)
    with pytest.raises(VerificationError) as caught:
        Extracted([contents])
    assert "'PATH'" in str(caught.value)
    assert "] True;" in str(caught.value)
    assert "TOKEN" not in str(caught.value)
    assert "PYTHON" not in str(caught.value)


def test_ctrl_c_ends_the_process_too(contents: Contents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "BOOT", "import time; time.sleep(600)")
    before, begin = children(), time.monotonic()
    threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        Extracted([contents])
    assert time.monotonic() - begin < 60
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    assert children() <= before


def test_no_space_for_the_tensors(
    contents: Contents, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    for known_before in (True, False):
        if not known_before:  # it fills up while the process writes
            monkeypatch.setattr(sandbox, "_check_space", lambda needed: None)
        with pytest.raises(UsageError, match=r"has no space .* set TMPDIR"):
            Extracted([contents])
        assert list(small_disk.iterdir()) == []


def test_no_temporary_directory(contents: Contents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(contents.path.parent / "absent"))
    with pytest.raises(UsageError, match=r"no temporary file can be made: .*; set TMPDIR"):
        Extracted([contents])


def test_it_works_in_a_folder_that_has_other_modules_of_these_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch", "zoo_converters", "json", "zoo"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    Path("pytorch_model.bin").write_bytes(zipped(pickled(dictionary({"a": tensor()}))))
    with BIN.open(Path(), ("pytorch_model.bin",)) as reader:
        assert reader.read("a").tobytes() == FLOATS
