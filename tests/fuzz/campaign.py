"""Execution of many cases in worker processes, with a summary for each reader."""

import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.fuzz.case import Outcome, Runner
from tests.fuzz.reader import Reader
from tests.fuzz.readers import all_readers

MEMORY_DISK = Path("/dev/shm")
PRELOADED = (
    "torch",
    "torch._dynamo",  # imported by the first optimizer
    "torch.utils.tensorboard",
    "safetensors.numpy",
    "safetensors.torch",
    "onnx",
    "onnxruntime",
    "tokenizers",
    "jinja2",
    "h5py",
    "pyarrow.parquet",
    "zstandard",
    "sentencepiece",
    "gguf",
    "yaml",
)
# imported with all submodules before forking
PACKAGES = ("zoo", "zoo_converters", "zoo_bert", "zoo_elmo", "zoo_gpt", "zoo_t5")


@dataclass
class Summary:
    """Result of the cases of one reader.

    Attributes:
        cases: total number of cases.
        accepted: number of cases that ended with equal values.
        refused: number of cases that ended with a documented error.
        failures: outcomes of the other cases.
        seconds: CPU time of all cases.
        slowest, peak, size: maximum CPU time in seconds, memory and bytes of files of one case.
        checks: place of a check in the source -> number of cases that it refused.
    """

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    failures: list[Outcome] = field(default_factory=list)
    seconds: float = 0
    slowest: float = 0
    peak: int = 0
    size: int = 0
    checks: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, float]:
        """Return the figures for the table of readers."""
        return {
            "cases": self.cases,
            "accepted": self.accepted,
            "refused": self.refused,
            "failures": len(self.failures),
            "slowest": round(self.slowest, 1),
            "peak": self.peak >> 20,
            "size": self.size,
            "checks": len(self.checks),
            "at_one_check": max(self.checks.values(), default=0),
        }

    def add(self, outcome: Outcome) -> None:
        self.cases += 1
        self.seconds += outcome.seconds
        self.slowest = max(self.slowest, outcome.seconds)
        self.peak = max(self.peak, outcome.peak)
        self.size = max(self.size, outcome.size)
        if outcome.failure:
            self.failures.append(outcome)
        elif outcome.code:
            self.refused += 1
            self.checks[outcome.check] += 1
        else:
            self.accepted += 1


def plan(readers: Sequence[Reader], cases: int) -> list[tuple[str, int]]:
    """Return the cases, interleaved such that every prefix covers all readers by weight."""
    total = sum(reader.weight for reader in readers)
    planned = []
    for reader in readers:
        count = max(1, round(cases * reader.weight / total))
        planned += [((number + 0.5) / count, reader.name, number) for number in range(count)]
    return [(name, number) for _, name, number in sorted(planned)]


@contextmanager
def prepared(readers: Iterable[Reader], keep: Path | None) -> Iterator[Runner]:
    """Yield a runner, with examples made in subprocesses."""
    preload()
    place = MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=place) as folder:
        examples = Path(folder, "examples")
        scratch = Path(folder, "scratch")
        scratch.mkdir()
        for reader in readers:
            make_example(reader, examples)
        yield Runner(examples, scratch, keep)


def preload() -> None:
    """Import the modules of all commands, once."""
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "MALLOC_ARENA_MAX": "2",
    }
    for name in (*PRELOADED, *_modules()):
        importlib.import_module(name)
    import torch

    from zoo.plugins import all_families

    torch.set_num_threads(1)
    all_families()
    gc.collect()
    gc.freeze()


def _modules() -> Iterator[str]:
    for package in map(importlib.import_module, PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                yield module.name


def make_example(reader: Reader, examples: Path) -> None:
    """Make a reader's example in a fork, so that this process starts no threads."""
    child = os.fork()
    if not child:
        try:
            (examples / reader.name).mkdir(parents=True)
            reader.make(examples / reader.name)
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"the example of {reader.name} cannot be made")


def work(
    cases: Iterable[tuple[str, int]], seed: int, until: float, keep: Path
) -> Iterator[Outcome]:
    """Run cases in sequence until the time limit."""
    readers = all_readers()
    listed = list(cases)
    with prepared([readers[name] for name in dict.fromkeys(n for n, _ in listed)], keep) as runner:
        for name, number in listed:
            if time.time() > until:
                return
            yield runner.run(readers[name], seed, number)


def campaign(
    cases: Sequence[tuple[str, int]], *, seed: int, seconds: float, jobs: int, keep: Path
) -> Iterator[Outcome]:
    """Run cases in several processes, and yield outcomes as they finish."""
    until = time.time() + seconds
    workers = []
    for number in range(jobs):
        order = {
            "cases": cases[number::jobs],
            "seed": seed,
            "until": until,
            "keep": str(keep),
        }
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.campaign"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert worker.stdin is not None
        worker.stdin.write(json.dumps(order))
        worker.stdin.close()
        workers.append(worker)
    try:
        yield from _gather(workers)
    finally:
        for worker in workers:
            worker.kill()


def _gather(workers: "list[subprocess.Popen[str]]") -> Iterator[Outcome]:
    import selectors

    selector = selectors.DefaultSelector()
    for worker in workers:
        assert worker.stdout is not None
        selector.register(worker.stdout, selectors.EVENT_READ)
    while selector.get_map():
        for key, _ in selector.select():
            line = key.fileobj.readline()  # type: ignore[union-attr]
            if not line:
                selector.unregister(key.fileobj)
            else:
                yield Outcome(**json.loads(line))
    if any(worker.wait() for worker in workers):
        raise RuntimeError("a worker of the fuzzer failed")


def summarise(outcomes: Iterable[Outcome]) -> dict[str, Summary]:
    summaries: dict[str, Summary] = {}
    for outcome in outcomes:
        summaries.setdefault(outcome.reader, Summary()).add(outcome)
    return dict(sorted(summaries.items()))


def lines(summaries: Mapping[str, Summary]) -> list[str]:
    """Return a table of the summaries as text."""
    form = "{:<18} {:>7} {:>8} {:>8} {:>8} {:>9} {:>8} {:>8} {:>7} {:>9}"
    names = ("reader", "cases", "accepted", "refused", "failures", "CPU s", "slowest", "peak MB")
    head = (*names, "checks", "most at 1")
    table = [form.format(*head)]
    for name, summary in summaries.items():
        figures = (summary.cases, summary.accepted, summary.refused, len(summary.failures))
        times = (f"{summary.seconds:.1f}", f"{summary.slowest:.2f}", summary.peak >> 20)
        most = max(summary.checks.values(), default=0)
        table.append(form.format(name, *figures, *times, len(summary.checks), most))
    return table


def _main() -> None:
    order = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    keep = Path(order["keep"])
    for outcome in work(order["cases"], order["seed"], order["until"], keep):
        print(json.dumps(asdict(outcome)), file=answers, flush=True)


if __name__ == "__main__":
    _main()
