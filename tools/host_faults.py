"""Faults of two hosts while they train: what is said, when, and how the run ends.

    python -m tools.host_faults [--fault NAME]... [--moments 2] [--kills 0] [--fsdp] [--steps 600]
        [--keep FOLDER]

The hosts are network namespaces with a cable between them, and names and addresses of their own;
this needs root and `ip`. Each fault happens at random steps of a run that `torchrun --max-restarts`
and `--auto-resume` keep up: a process is killed or stopped, a host is killed and replaced, or lost
for good, and the cable is pulled for 90 seconds. `--kills` kills processes of both hosts, ten in
a run, with DDP and with FSDP2. The final weights are compared with those of a run without faults.

These take two hours: all faults at ten moments and 30 kills of each kind are 120 faults in 66 runs.
`--keep` has the outcomes of those that are done, and the same command goes on after them:

    nice -n 15 python -m tools.host_faults --fault 'host killed, replaced' --fault 'host lost' \\
        --fault 'cut off for 90 s' --moments 10 --kills 30 --steps 300 --keep FOLDER
"""

import argparse
import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from safetensors.numpy import load_file

from benchmarks._common import table
from zoo import data
from zoo.training.distributed.process_state import read_process_state

ADDRESSES = {"hosta": "10.99.8.1", "hostb": "10.99.8.2"}
MESSAGE = re.compile(r"(?:warning|error): .*")
SAVE_STEPS = 20
CUT_SECONDS = 90.0
LIMIT_SECONDS = 600.0  # of a run
KILLS_PER_RUN = 10
MAX_DELAY = 0.5  # seconds, at most, between the step and the fault, which may come within a step
OUTCOMES = "outcomes.jsonl"
SETTINGS = (
    "--set=config={hidden_size: 32, num_heads: 2, intermediate_size: 64, dropout: 0.0, "
    "attention_dropout: 0.0, embedding_dropout: 0.0}",
    "--set=vocab_size=400",
    "--set=seq_len=64",
    "--set=global_batch_tokens=256",
    "--set=logging_steps=1",
    "--set=eval_sequences=4",
    f"--set=save_steps={SAVE_STEPS}",
)


class Hosts:
    """Two network namespaces with a cable between them."""

    def __init__(self) -> None:
        self._namespaces = {name: f"zoo-{os.getpid()}-{name}" for name in ADDRESSES}
        number = os.getpid() % 100_000
        self._cables = {"hosta": f"zoo{number}a", "hostb": f"zoo{number}b"}

    def __enter__(self) -> "Hosts":
        names = "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
        for namespace in self._namespaces.values():
            _run("ip", "netns", "add", namespace)
            directory = Path("/etc/netns") / namespace
            directory.mkdir(parents=True)
            (directory / "hosts").write_text(f"127.0.0.1 localhost\n{names}")
        first, second = self._cables.values()
        _run("ip", "link", "add", first, "type", "veth", "peer", "name", second)
        for host, cable in self._cables.items():
            namespace = self._namespaces[host]
            _run("ip", "link", "set", cable, "netns", namespace)
            _run("ip", "-n", namespace, "addr", "add", f"{ADDRESSES[host]}/24", "dev", cable)
            _run("ip", "-n", namespace, "link", "set", cable, "up")
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
        return self

    def __exit__(self, *error: object) -> None:
        for host, namespace in self._namespaces.items():
            self.kill(host)
            subprocess.run(["ip", "netns", "del", namespace], check=False)
            shutil.rmtree(Path("/etc/netns") / namespace, ignore_errors=True)

    def start(
        self, host: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        """Start a command on a host; its process has the number of the ``Popen``."""
        shell = ["unshare", "--uts", "bash", "-c", f'hostname {host}; exec "$@"', "host"]
        with log.open("ab") as file:
            return subprocess.Popen(
                ["ip", "netns", "exec", self._namespaces[host], *shell, *command],
                stdout=subprocess.DEVNULL,
                stderr=file,
                env={**os.environ, **environment},
            )

    def kill(self, host: str) -> None:
        """Kill all processes of a host."""
        done = subprocess.run(
            ["ip", "netns", "pids", self._namespaces[host]],
            capture_output=True,
            text=True,
            check=False,
        )
        for pid in done.stdout.split():
            send(int(pid), signal.SIGKILL)

    def set_cable(self, *, plugged: bool) -> None:
        """Plug the cable in, or pull it."""
        state = "up" if plugged else "down"
        _run("ip", "-n", self._namespaces["hostb"], "link", "set", self._cables["hostb"], state)


@dataclass
class Job:
    """A run on two hosts, each with an agent of ``torchrun`` and one process."""

    hosts: Hosts
    folder: Path
    home: Path
    max_steps: int
    options: Sequence[str] = ()
    node_counts: str = "2"
    restarts: int = 2
    shares_store: bool = True  # Whether torchrun uses one store for all starts.
    agents: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def log(self, host: str) -> Path:
        return self.folder / f"{host}.log"

    def start(self) -> None:
        """Start both hosts; the first one has the store of the rendezvous."""
        self.folder.mkdir(parents=True)
        for host in ADDRESSES:
            self.start_agent(host)
            time.sleep(1)

    def start_agent(self, host: str) -> None:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", self.node_counts]
        launcher += ["--nproc-per-node", "1", "--max-restarts", str(self.restarts)]
        launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "hosta:29400"]
        launcher += ["--rdzv-conf", "last_call_timeout=15,read_timeout=600"]
        command = ["-m", "zoo", "pretrain", "gpt", "--size", "tiny", *SETTINGS]
        command += [f"--max-steps={self.max_steps}", f"--set=eval_steps={self.max_steps}"]
        command += ["--device", "cpu", "--threads", "1", *self.options]
        command += ["--set", f"data.paths=[{self.home}/train.txt]"]
        command += ["--set", f"data.eval_paths=[{self.home}/eval.txt]"]
        command += ["-o", str(self.run), "--auto-resume"]
        environment = {"ZOO_HOME": str(self.home / "zoo"), "OMP_NUM_THREADS": "1"}
        if not self.shares_store:
            environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        self.agents[host] = self.hosts.start(
            host, [*launcher, *command], self.log(host), environment
        )

    def worker(self, host: str) -> int:
        """Return the number of the process that trains on a host."""
        processes: list[int] = []

        def has_started() -> bool:
            processes[:] = child_processes(self.agents[host].pid)
            return bool(processes)

        self.wait(has_started)
        return processes[0]

    def steps(self) -> int:
        """Return the number of the last step that was logged."""
        log = self.run / "metrics.jsonl"
        return log.read_bytes().count(b"\n") if log.exists() else 0

    def wait(self, condition: Callable[[], bool], seconds: float = LIMIT_SECONDS) -> None:
        """Wait for a condition while the first host runs."""
        until = time.monotonic() + seconds
        while not condition():
            if self.agents["hosta"].poll() is not None or time.monotonic() > until:
                raise TimeoutError(f"see the logs in {self.folder}")
            time.sleep(0.05)

    def finish(self) -> None:
        """Wait for the end of the run, which has to succeed."""
        code = self.agents["hosta"].wait(LIMIT_SECONDS)
        if code or not (self.run / "model").is_dir():
            raise RuntimeError(f"torchrun ended with {code}: see the logs in {self.folder}")

    def log_sizes(self) -> dict[str, int]:
        return {host: self.log(host).stat().st_size for host in ADDRESSES}

    def messages(self, log_sizes: Mapping[str, int]) -> list[str]:
        """Return the warnings and errors that were written after logs had some sizes."""
        lines = []
        for host, size in log_sizes.items():
            text = self.log(host).read_bytes()[size:].decode(errors="replace")
            lines += [f"{host}: {line}" for line in MESSAGE.findall(text)]
        return lines


def kill_process(job: Job) -> None:
    send(job.worker("hostb"), signal.SIGKILL)


def kill_main_process(job: Job) -> None:
    send(job.worker("hosta"), signal.SIGKILL)


def stop_process(job: Job) -> None:
    send(job.worker("hostb"), signal.SIGSTOP)


def kill_host(job: Job) -> None:
    job.hosts.kill("hostb")
    job.agents["hostb"].wait()


def pull_cable(job: Job) -> None:
    job.hosts.set_cable(plugged=False)


def nothing(job: Job) -> None:
    """Leave the run to itself."""


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        begin: causes it.
        mend: mends it, after the first message and ``seconds``.
        seconds: how long it lasts at least.
        options: options of the run.
        node_counts: machines that it may have.
        shares_store: see ``Job``.
    """

    begin: Callable[[Job], None]
    mend: Callable[[Job], None] = nothing
    seconds: float = 0.0
    options: tuple[str, ...] = ()
    node_counts: str = "2"
    shares_store: bool = True


FAULTS = {
    "process killed": Fault(kill_process),
    "main process killed": Fault(kill_main_process),
    "process stopped": Fault(stop_process, options=("--timeout", "60s")),
    "host killed, replaced": Fault(
        kill_host, lambda job: job.start_agent("hostb"), shares_store=False
    ),
    # One host may begin before the other one has joined.
    "host lost": Fault(kill_host, node_counts="1:2", shares_store=False),
    "cut off for 90 s": Fault(
        pull_cable, lambda job: job.hosts.set_cable(plugged=True), seconds=CUT_SECONDS
    ),
}


class Outcome(msgspec.Struct, frozen=True):
    """What a fault led to.

    Attributes:
        step: last step before it.
        seconds: time to the first message.
        messages: warnings and errors of both hosts until the end of the run, or the next fault.
        difference: of the final weights and the losses, or what ended the run.
    """

    step: int
    seconds: float | None
    messages: list[str]
    difference: str = ""


class Trial(msgspec.Struct, frozen=True):
    """A run with one fault or several, and what they led to."""

    fault: str
    number: int
    outcomes: list[Outcome]


def try_fault(fault: Fault, job: Job, expected: Path, generator: random.Random) -> list[Outcome]:
    """Cause a fault at a random moment, mend it, and compare the final weights."""
    step = generator.randrange(10, job.max_steps // 2)
    job.start()
    job.wait(lambda: job.steps() >= step)
    time.sleep(generator.random() * MAX_DELAY)
    log_sizes = job.log_sizes()
    start = time.monotonic()
    actual_step = job.steps()
    fault.begin(job)
    job.wait(lambda: bool(job.messages(log_sizes)))
    seconds = time.monotonic() - start
    time.sleep(max(0.0, fault.seconds - seconds))
    fault.mend(job)
    job.finish()
    messages = job.messages(log_sizes)
    return [Outcome(actual_step, seconds, messages, difference(expected, job.run))]


def try_kills(job: Job, kills: int, expected: Path, generator: random.Random) -> list[Outcome]:
    """Kill a process of either host at random moments, and compare the final weights."""
    job.restarts = 2 * kills
    job.start()
    outcomes = []
    for number in range(kills):
        moment = (number + generator.random()) / kills
        target = min(job.max_steps - 20, job.max_steps * moment)
        job.wait(lambda step=target: job.steps() >= step)  # type: ignore[misc]
        time.sleep(generator.random() * MAX_DELAY)
        host = generator.choice(list(ADDRESSES))
        killed = job.worker(host)
        log_sizes = job.log_sizes()
        start = time.monotonic()
        actual_step = job.steps()
        send(killed, signal.SIGKILL)
        seconds: float | None = None

        def has_restarted(
            old: int = killed, name: str = host, sizes: Mapping[str, int] = log_sizes
        ) -> bool:
            return bool(job.messages(sizes)) or job.worker(name) != old

        job.wait(has_restarted)
        if job.messages(log_sizes):
            seconds = time.monotonic() - start
        job.wait(lambda old=killed, name=host: job.worker(name) != old)  # type: ignore[misc]
        outcomes.append(Outcome(actual_step, seconds, job.messages(log_sizes)))
    job.finish()
    result = difference(expected, job.run)
    return [msgspec.structs.replace(outcome, difference=result) for outcome in outcomes]


def difference(expected: Path, run: Path) -> str:
    """Return the difference of the weights of two runs, and of their losses."""
    name = Path("model", "model.safetensors")
    if (expected / name).read_bytes() == (run / name).read_bytes():
        return "the same bytes"
    expected_weights = load_file(expected / name)
    largest = 0.0
    for tensor_name, tensor in load_file(run / name).items():
        largest = max(largest, float(np.abs(tensor - expected_weights[tensor_name]).max()))
    pairs = zip(losses(expected), losses(run), strict=True)
    largest_loss = max(abs(first - second) for first, second in pairs)
    return f"weights {largest:.1e}, losses {largest_loss:.1e}"


def losses(run: Path) -> list[float]:
    records = map(msgspec.json.decode, (run / "metrics.jsonl").read_bytes().splitlines())
    return [record["loss"] for record in records]


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def child_processes(pid: int) -> list[int]:
    """Return the children of a process, without those that have ended."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    running = []
    for child in map(int, children):
        state = read_process_state(child)
        if state is not None and not state.has_ended:
            running.append(child)
    return running


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def write_data(home: Path) -> None:
    """Write a little text to train on."""
    home.mkdir()
    sample = Path(data.__file__).parent / "sample" / "alice.txt"
    text = sample.read_text("utf-8")
    (home / "train.txt").write_text(text[:60_000], "utf-8")
    (home / "eval.txt").write_text(text[60_000:80_000], "utf-8")


@contextlib.contextmanager
def scratch(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


class Trials:
    """The trials of a command; the outcomes of those that are done are in a folder.

    Args:
        hosts: the two hosts.
        folder: folder of the runs, the logs and the outcomes.
        max_steps: steps of each run.
        seed: seed of the moments.
    """

    def __init__(self, hosts: Hosts, folder: Path, max_steps: int, seed: int) -> None:
        self._hosts = hosts
        self._folder = folder
        self._max_steps = max_steps
        self._seed = seed
        self._home = folder / "home"
        if not self._home.exists():
            write_data(self._home)
        self.trials: list[Trial] = []
        self._file = folder / OUTCOMES
        if self._file.exists():
            for line in self._file.read_bytes().splitlines():
                self.trials.append(msgspec.json.decode(line, type=Trial))

    def unbroken_run(self, *, fsdp: bool) -> Path:
        """Return a run without faults."""
        job = self._job("unbroken-fsdp" if fsdp else "unbroken", fsdp=fsdp)
        if not (job.run / "model").is_dir():
            shutil.rmtree(job.folder, ignore_errors=True)
            job.start()
            job.finish()
            self._kill_all()
        return job.run

    def try_moment(self, name: str, number: int, *, fsdp: bool) -> None:
        """Try a fault of ``FAULTS``."""
        fault = FAULTS[name]
        label = f"{name}, FSDP2" if fsdp else name
        job = self._job(f"{label} {number}", fsdp=fsdp)
        job.options = (*job.options, *fault.options)
        job.node_counts = fault.node_counts
        job.shares_store = fault.shares_store
        expected = self.unbroken_run(fsdp=fsdp)
        self._try(label, number, job, partial(try_fault, fault, job, expected))

    def try_kills(self, kills: int, number: int, *, fsdp: bool) -> None:
        """Kill so many processes in one run."""
        label = f"processes killed, {'FSDP2' if fsdp else 'DDP'}"
        job = self._job(f"{label} {number}", fsdp=fsdp)
        expected = self.unbroken_run(fsdp=fsdp)
        self._try(label, number, job, partial(try_kills, job, kills, expected))

    def _job(self, name: str, *, fsdp: bool) -> Job:
        folder = self._folder / name.replace(",", "").replace(" ", "-")
        options = ("--fsdp",) if fsdp else ()
        return Job(self._hosts, folder, self._home, self._max_steps, options)

    def _try(
        self, label: str, number: int, job: Job, run: Callable[[random.Random], list[Outcome]]
    ) -> None:
        """Make a trial, unless its outcomes are known."""
        if any((trial.fault, trial.number) == (label, number) for trial in self.trials):
            return
        shutil.rmtree(job.folder, ignore_errors=True)  # An earlier command was interrupted.
        try:
            outcomes = run(random.Random(f"{self._seed} {label} {number}"))
        except (TimeoutError, RuntimeError) as error:
            outcomes = [Outcome(job.steps(), None, [], str(error))]
        finally:
            self._hosts.set_cable(plugged=True)
            self._kill_all()
        trial = Trial(label, number, outcomes)
        self.trials.append(trial)
        with self._file.open("ab") as file:
            file.write(msgspec.json.encode(trial) + b"\n")
        for row in trial_rows(trial):
            print(" | ".join(row), file=sys.stderr, flush=True)

    def _kill_all(self) -> None:
        for host in ADDRESSES:
            self._hosts.kill(host)


def trial_rows(trial: Trial) -> list[tuple[str, ...]]:
    """Return a row for each fault of a trial, with its first message."""
    rows: list[tuple[str, ...]] = []
    for outcome in trial.outcomes:
        seconds = "" if outcome.seconds is None else f"{outcome.seconds:.1f}"
        message = next(iter(outcome.messages), "")
        rows.append((trial.fault, str(outcome.step), seconds, message, outcome.difference))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.host_faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fault", action="append", choices=FAULTS, help="may be repeated")
    parser.add_argument("--moments", type=int, default=2, help="random moments of each fault")
    parser.add_argument("--kills", type=int, default=0, help="random kills with DDP, and with FSDP")
    parser.add_argument("--fsdp", action="store_true", help="FSDP2 in place of DDP, for --fault")
    parser.add_argument("--steps", type=int, default=600, help="steps of each run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--keep", type=Path, help="folder of runs, logs and outcomes, to go on")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("ip") is None:
        parser.error("network namespaces need root and `ip`")
    names = arguments.fault or list(FAULTS)
    with scratch(arguments.keep) as folder, Hosts() as hosts:
        trials = Trials(hosts, folder, arguments.steps, arguments.seed)
        for first_kill in range(0, arguments.kills, KILLS_PER_RUN):
            kills = min(KILLS_PER_RUN, arguments.kills - first_kill)
            for fsdp in (False, True):
                trials.try_kills(kills, first_kill, fsdp=fsdp)
        for moment, name in itertools.product(range(arguments.moments), names):
            trials.try_moment(name, moment, fsdp=arguments.fsdp)
    rows: list[tuple[str, ...]] = []
    for trial in sorted(trials.trials, key=lambda trial: (trial.fault, trial.number)):
        rows += trial_rows(trial)
    print(table(("fault", "after step", "s to the message", "message", "difference"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
