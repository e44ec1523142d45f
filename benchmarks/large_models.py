"""Memory that conversion, verification and export of a large model take, next to its weights.

    python -m benchmarks.large_models [--gigabytes 10] [--most-memory 2.0] [--folder DIR]

A BERT with zero weights is written into sparse files, so that the source takes no disk space; its
conversion and its export take as much as the weights each. ``zoo convert``, ``zoo verify`` and
``zoo export --onnx`` run in processes of their own, whose anonymous memory is read from ``/proc``
every 20 ms. Pages of mapped files are not counted: the system drops them when it needs room. The
benchmark fails if a command takes more than ``--most-memory`` GB.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks._common import machine, table, versions
from tests.conversion.sparse import sparse_checkpoint

GB = 1_000_000_000
POLL_SECONDS = 0.02
HIDDEN_SIZE = 4096
INTERMEDIATE_SIZE = 16384
VOCAB_SIZE = 250_000
# Queries, keys, values, output and the two layers of the MLP.
LAYER_WEIGHTS = 4 * HIDDEN_SIZE**2 + 2 * HIDDEN_SIZE * INTERMEDIATE_SIZE
FLOAT_BYTES = 4


class Memory(NamedTuple):
    """Peaks of a command in bytes, and its wall time in seconds."""

    anonymous: int
    resident: int
    seconds: float


def read_status(pid: int, field: str) -> int:
    """Return a size in ``/proc/PID/status`` in bytes, 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    return 0


def processes_below(pid: int) -> list[int]:
    """Return a process and those that it started."""
    processes = [pid]
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii")
            for child in children.split():
                processes += processes_below(int(child))
    return processes


def measure(arguments: list[str]) -> Memory:
    """Run ``zoo`` with arguments; a failure is an error."""
    argv = [sys.executable, "-m", "zoo", *arguments]
    anonymous = 0
    resident = 0
    started = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
        ended = threading.Event()

        def watch() -> None:
            nonlocal anonymous, resident
            while not ended.wait(POLL_SECONDS):
                tree = processes_below(process.pid)
                anonymous = max(anonymous, sum(read_status(pid, "RssAnon") for pid in tree))
                resident = max(resident, sum(read_status(pid, "VmRSS") for pid in tree))

        watcher = threading.Thread(target=watch)
        watcher.start()
        status = process.wait()
        ended.set()
        watcher.join()
        if status:
            output.seek(0)
            sys.exit(f"{' '.join(argv)} failed:\n{output.read().decode(errors='replace')}")
    return Memory(anonymous, resident, time.perf_counter() - started)


def main() -> None:
    """Print a row for each command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=10.0, help="size of the weights")
    parser.add_argument("--most-memory", type=float, default=2.0, help="in GB")
    parser.add_argument("--folder", type=Path, help="where files are written; they are removed")
    options = parser.parse_args()
    embedding_bytes = VOCAB_SIZE * HIDDEN_SIZE * FLOAT_BYTES
    layer_bytes = LAYER_WEIGHTS * FLOAT_BYTES
    layers = max(1, round((options.gigabytes * GB - embedding_bytes) / layer_bytes))
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        source = Path(scratch, "source")
        model = Path(scratch, "model")
        graph = Path(scratch, "graph")
        size = sparse_checkpoint(
            source,
            shard_bytes=5 * GB,
            vocab_size=VOCAB_SIZE,
            hidden_size=HIDDEN_SIZE,
            num_hidden_layers=layers,
            intermediate_size=INTERMEDIATE_SIZE,
        )
        commands = {
            "convert": ["convert", str(source), "-o", str(model), "--offline"],
            "verify": ["verify", str(model)],
            "export": ["export", str(model), "--onnx", "-o", str(graph)],
        }
        rows = []
        peaks = []
        for name, arguments in commands.items():
            memory = measure(arguments)
            peaks.append(memory.anonymous)
            rows.append(
                (
                    f"zoo {name}",
                    f"{memory.seconds:.0f} s",
                    f"{memory.anonymous / GB:.2f} GB",
                    f"{memory.resident / GB:.2f} GB",
                )
            )
            print(f"{rows[-1]}", file=sys.stderr, flush=True)
    print(f"{size / GB:.2f} GB of weights; {machine()}; {versions('torch', 'onnxruntime')}\n")
    print(table(("command", "time", "anonymous memory", "with mapped files"), rows))
    if max(peaks) > options.most_memory * GB:
        sys.exit(f"a command took more than {options.most_memory} GB")


if __name__ == "__main__":
    main()
