"""A seccomp filter for a process that reads and computes: no network, no programs, no new files.

The kernel answers "not permitted" to the calls listed here, for native code as for Python. It is
a list of what is refused, and no proof that what it leaves can do no harm.
"""

import ctypes
import os
import platform
import struct
import sys

# call, its number on x86-64, its number on ARM64 (Linux, unistd.h)
REFUSED = """
socket 41 198, socketpair 53 199, connect 42 203, bind 49 200, listen 50 201, accept 43 202,
accept4 288 242, sendto 44 206, sendmsg 46 211, io_uring_setup 425 425, bpf 321 280,
execve 59 221, execveat 322 281, fork 57 -, vfork 58 -, ptrace 101 117, kill 62 129,
process_vm_writev 311 271, pidfd_send_signal 424 424, openat2 437 437, creat 85 -,
truncate 76 45, rename 82 -, renameat 264 38, renameat2 316 276, link 86 -, linkat 265 37,
symlink 88 -, symlinkat 266 36, unlink 87 -, unlinkat 263 35, mkdir 83 -, mkdirat 258 34,
rmdir 84 -, mknod 133 -, mknodat 259 33, mount 165 40, chmod 90 -, fchmod 91 52, fchmodat 268 53,
chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54
"""
CLONE, CLONE3, SECCOMP = ("56", "220"), ("435", "435"), ("317", "277")
OPENS = {1: ("2", "-"), 2: ("257", "56")}  # which argument has the flags -> open, openat
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column, audit number
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CLONE_THREAD = 0x10000
# the instructions of the filter's machine, its answers, and where it finds what
LOAD, IF_EQUAL, IF_ANY_BIT, ANSWER = 0x20, 0x15, 0x45, 0x06
ALLOW, NOT_PERMITTED, NO_SUCH_CALL = 0x7FFF0000, 0x00050001, 0x00050026
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
OTHER_NUMBERING = 0x40000000  # x86-64 with short pointers


def forbid_system_calls() -> bool:
    """Put the filter in place, on all threads and for good; and end with the parent process.

    Returns:
        whether the kernel agreed. It does not outside of Linux, nor on other machines.
    """
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURES:
        return False
    column, architecture = ARCHITECTURES[platform.machine()]
    code = assemble(column, architecture)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None)
    killed_with_parent, no_new_privileges = 1, 38
    libc.prctl(killed_with_parent, 9, 0, 0, 0)
    libc.prctl(no_new_privileges, 1, 0, 0, 0)
    set_filter, all_threads = 1, 1
    return bool(libc.syscall(int(SECCOMP[column]), set_filter, all_threads, program) == 0)


def assemble(column: int, architecture: int) -> bytes:
    """Return the filter's program: a line of tests, each with its answer behind it.

    Args:
        column: which of the two numberings.
        architecture: the audit number of the only architecture that may make calls.
    """

    def step(code: int, value: int, skip_if: int = 0, skip_else: int = 0) -> bytes:
        return struct.pack("=HBBI", code, skip_if, skip_else, value)

    no, yes = step(ANSWER, NOT_PERMITTED), step(ANSWER, ALLOW)

    def when(numbers: tuple[str, ...], answer: bytes) -> bytes:
        if numbers[column] == "-":
            return b""
        return step(IF_EQUAL, int(numbers[column]), 0, len(answer) // 8) + answer

    def unless(argument: int, bits: int) -> bytes:
        return step(LOAD, ARGUMENTS_AT + 8 * argument) + step(IF_ANY_BIT, bits, 0, 1)

    program = step(LOAD, ARCHITECTURE_AT) + step(IF_EQUAL, architecture, 1) + no
    program += step(LOAD, NUMBER_AT) + step(IF_ANY_BIT, OTHER_NUMBERING, 0, 1) + no
    program += when(CLONE, unless(0, CLONE_THREAD) + yes + no)
    program += when(CLONE3, step(ANSWER, NO_SUCH_CALL))  # its flags are not seen: libc falls back
    for argument, numbers in OPENS.items():
        program += when(numbers, unless(argument, WRITING) + no + yes)
    for line in REFUSED.split(","):
        program += when(tuple(line.split()[1:]), no)
    return program + yes
