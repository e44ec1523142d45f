"""CPU time of encoding texts in torch, with freed memory kept, as in zoo, and given back.

    python -m benchmarks.freed_memory MODEL --texts FILE [--threads 1] [--rounds 7]

MODEL is an encoder in the Hub's layout, FILE has a text on each line. 96 of them are encoded in
batches of 16 of similar length, five times. Each measurement is a process of its own, since the
allocator of the C library is set once; loading is not measured. Both compute the same bits.
"""

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import time
from typing import Any
from unittest import mock

import torch

from benchmarks._common import machine, table, versions
from benchmarks.bounds import encoded, encoding_parser, run_all
from zoo.inference.memory import keep_freed_memory

TIMES = 5
SIDES = {"returned": "returned to the system", "kept": "kept"}


def main() -> None:
    parser = encoding_parser(__doc__)
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(encode(options)))
        return
    rows = []
    for dtype in ("float32", "int8"):
        seconds: dict[str, list[float]] = {side: [] for side in SIDES}
        digests = set()
        for _ in range(options.rounds):
            for side in SIDES:
                argv = [sys.executable, "-m", "benchmarks.freed_memory", *sys.argv[1:]]
                done = subprocess.run(
                    [*argv, "--side", side, dtype], capture_output=True, text=True, check=True
                )
                found = json.loads(done.stdout)
                seconds[side].append(found["seconds"])
                digests.add(found["digest"])
        if len(digests) != 1:
            sys.exit(f"the hidden states in {dtype} differ")
        medians = {side: statistics.median(values) for side, values in seconds.items()}
        ratio = medians["kept"] / medians["returned"]
        rows.append([dtype, *(f"{medians[side]:.3f}" for side in SIDES), f"{ratio:.2f}"])
    print(f"{machine(options.threads)}; {versions('torch')}\n")
    print(table(["", *(f"{name}, CPU s" for name in SIDES.values()), "ratio"], rows))


def encode(options: argparse.Namespace) -> dict[str, Any]:
    """Return the CPU time of one side, and a digest of the hidden states."""
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.exporting.session import open_session

    side, dtype = options.side
    checkpoint = resolve_checkpoint(options.model)
    batches = list(encoded(checkpoint, options.texts))
    torch.set_num_threads(options.threads)
    function = keep_freed_memory if side == "kept" else bool
    with mock.patch("zoo.inference.torch_session.keep_freed_memory", function):
        session = open_session(checkpoint, "cpu", dtype=dtype, threads=options.threads)
    outputs = run_all(session, batches)
    start = time.process_time()
    for _ in range(TIMES):
        run_all(session, batches)
    seconds = time.process_time() - start
    content = b"".join(array.tobytes() for output in outputs for array in output.values())
    return {"seconds": seconds, "digest": hashlib.sha256(content).hexdigest()}


if __name__ == "__main__":
    main()
