"""Encoding texts in float32 on a CPU by oneDNN, as ``zoo run`` does, and by torch's default, MKL.

    python -m benchmarks.onednn MODEL --texts FILE [--threads 1] [--rounds 7]

MODEL is an encoder in the Hub's layout, FILE has a text on each line. 96 of them are encoded in
batches of 16 of similar length. Hidden states are compared first. On an Intel CPU, where zoo uses
MKL, this measures what it would be by oneDNN.
"""

from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks._common import cpu_table, machine, versions
from benchmarks.bounds import encoded, encoding_parser, run_all
from zoo.nn.kernels import onednn_linear

TOLERANCE = 1e-4  # of the largest magnitude
LIBRARIES = {"MKL": False, "oneDNN": True}


def main() -> None:
    options = encoding_parser(__doc__).parse_args()
    print(f"{machine(options.threads)}; {versions('torch')}\n")
    print(measured(options.model, options.texts, options.threads, options.rounds))


def measured(model: str, texts: Path, threads: int, rounds: int) -> str:
    """Return the table of both libraries."""
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.exporting.session import open_session

    checkpoint = resolve_checkpoint(model)
    batches = list(encoded(checkpoint, texts))
    torch.set_num_threads(threads)
    with mock.patch.object(onednn_linear, "is_faster", lambda: True):
        session: Any = open_session(checkpoint, "cpu", dtype="float32", threads=threads)
    # modules that the session would not have on Intel's CPUs
    onednn_linear.use_onednn(session.model)

    def by(fast: bool) -> list[Any]:
        with mock.patch.object(onednn_linear, "is_faster", lambda: fast):
            return run_all(session, batches)

    for ours, theirs in zip(by(True), by(False), strict=True):
        for name, expected in theirs.items():
            atol = TOLERANCE * float(np.abs(expected).max())
            np.testing.assert_allclose(ours[name], expected, rtol=0, atol=atol)
    return cpu_table({name: partial(by, fast) for name, fast in LIBRARIES.items()}, rounds)


if __name__ == "__main__":
    main()
