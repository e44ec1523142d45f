"""State of other processes: of this machine by the system, of others by a connection."""

import os
import signal
import socket
from dataclasses import dataclass

PROBE_SECONDS = 2.0  # Time in which a machine answers to an attempt to connect.


@dataclass(frozen=True)
class SystemProcessState:
    """What the system says of a process of this machine.

    Attributes:
        letter: its state as in ``ps``: ``R``, ``S``, ``D``, ``T`` (stopped), ``Z`` (ended) ...
        wait_status: how it ended, as ``os.waitpid`` returns it; 0 while it runs.
    """

    letter: str
    wait_status: int

    @property
    def has_ended(self) -> bool:
        """Whether it has ended; one that its parent has not waited for has, too."""
        return self.letter in ("Z", "X")

    @property
    def is_stopped(self) -> bool:
        """Whether a signal such as SIGSTOP, or a debugger, has stopped it."""
        return self.letter in ("T", "t")


def read_process_state(pid: int) -> SystemProcessState | None:
    """Return the state of a process of this machine, or ``None`` if there is no such process.

    Raises:
        OSError: the system does not say, as without ``/proc``.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        if not os.path.isdir("/proc/self"):
            raise
        return None
    # Fields 3 and 52 of proc_pid_stat(5); other users read 0 as the exit status.
    return SystemProcessState(fields[0], int(fields[49]))


def describe_end(wait_status: int) -> str:
    """Return how a process ended, such as ``was killed by SIGKILL``."""
    code = os.waitstatus_to_exitcode(wait_status)
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}"


def machine_id() -> str:
    """Return a name of this machine that no other one has, and no container with its own pids."""
    parts = [socket.gethostname()]
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            parts.append(file.read().strip())
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    except OSError:
        pass  # A system without /proc has its host name only.
    return " ".join(parts)


class LivenessPort:
    """A port of this process, to which others connect to learn whether it exists.

    The system completes the connections, also while the process is stopped. Without a process the
    system refuses them, and without a machine nobody answers.

    Args:
        remote_host: a host that the other processes connect to as well; it selects the interface.
    """

    def __init__(self, remote_host: str) -> None:
        self.address = _own_address(remote_host)
        self._socket = socket.create_server((self.address, 0), family=_family(self.address))
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def answer(self) -> None:
        """Accept and close all connections that wait."""
        try:
            while True:
                connection, _ = self._socket.accept()
                connection.close()
        except OSError:  # None waits, or the port is closed.
            return

    def close(self) -> None:
        """Close the port."""
        self._socket.close()


def probe(address: str, port: int) -> str:
    """Connect to the liveness port of another process; return what is known of it then.

    Returns:
        ``exists``, ``ended`` or ``unreachable``.
    """
    try:
        socket.create_connection((address, port), PROBE_SECONDS).close()
    except ConnectionRefusedError:
        return "ended"
    except OSError:
        return "unreachable"
    return "exists"


def is_loopback(address: str) -> bool:
    """Return whether an address means the machine that uses it."""
    return address.startswith("127.") or address == "::1"


def _own_address(remote_host: str) -> str:
    """Return the address of this machine that packets to a host have."""
    family, _, _, _, remote_address = socket.getaddrinfo(remote_host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.connect(remote_address)  # A datagram socket sends nothing by this.
        address: str = sender.getsockname()[0]
    return address


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
