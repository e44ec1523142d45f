"""The first vector of a text after an installation: zoo and sentence-transformers.

    python -m benchmarks.first_vector

Each process embeds one text with the same MiniLM, which is on the disk. In the first process after
an installation Python compiles the modules that are imported; later ones read the compiled files.
Both vectors are compared before the times are measured.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks._common import Process, alternate, machine, run_process, table, versions
from benchmarks.embed import packaged_model

ROUNDS = 5
TEXT = "A cat sat on the mat."
PEER = """
import json, sys
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
print(json.dumps(model.encode(sys.argv[2]).tolist()))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        model = str(packaged_model())
        variables = {
            "ZOO_HOME": str(work / "home"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(work / "compiled"),
        }
        zoo_argv = [sys.executable, "-P", "-m", "zoo", "run", "embed", model, TEXT]
        peer_argv = [sys.executable, "-P", "-c", PEER, model, TEXT]
        vector = json.loads(output_of(zoo_argv, variables))["embedding"]
        peer_vector = json.loads(output_of(peer_argv, variables))
        difference = np.abs(np.array(vector) - np.array(peer_vector)).max()
        assert difference < 1e-5, difference

        def first(argv: list[str]) -> Process:
            shutil.rmtree(work / "compiled", ignore_errors=True)
            return run_process(argv, variables)

        def later(argv: list[str]) -> Process:
            return run_process(argv, variables)

        rows = []
        for label, run in (("first process", first), ("later processes", later)):
            timings = alternate(
                {"zoo": lambda run=run: run(zoo_argv), "peer": lambda run=run: run(peer_argv)},  # type: ignore[misc]
                rounds=ROUNDS,
            )
            medians = {
                name: statistics.median(timing.cpu_seconds) for name, timing in timings.items()
            }
            row = [label, *(f"{seconds:.2f}" for seconds in medians.values())]
            rows.append([*row, f"{medians['peer'] / medians['zoo']:.2f}"])
    header = ["CPU seconds", "zoo", "sentence-transformers", "times as fast"]
    print(table(header, rows))
    print(f"\n{machine()}; {versions('torch', 'sentence-transformers')}; {ROUNDS} rounds")


def output_of(argv: list[str], variables: Mapping[str, str]) -> str:
    """Return the last line that a process prints."""
    done = subprocess.run(
        argv, env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip().splitlines()[-1]


if __name__ == "__main__":
    main()
