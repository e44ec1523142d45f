"""Feed-forward networks with a gate in T5, at equal parameters: the first table of Shazeer 2020.

    python -m benchmarks.glu_variants [--variants relu geglu ...] [--seeds 3] [--threads 2]

arXiv:2002.05202, table 1: a T5 is pretrained by span corruption with each feed-forward network, and
scored by its loss on held-out text. Networks with a gate have three matrices instead of two, and so
two thirds of the inner width (section 3.1). The model has the settings of T5's tiny recipe,
and the text comes with the package. ``--set`` changes settings of all runs, such as ``--set
max_steps=500``, with which all take about half an hour on one thread; ``--keep DIR`` keeps the runs
and repeats none that it has.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks._common import machine, table, versions
from benchmarks.tiny_recipes import pretrain
from zoo.plugins import get_family
from zoo.training.logging.run_history import RunHistory

VARIANTS = {  # name in the paper -> value of the configuration
    "relu": "relu",
    "gelu": "gelu",
    "swish": "silu",
    "glu": "gated-sigmoid",
    "bilinear": "gated-linear",
    "reglu": "gated-relu",
    "geglu": "gated-gelu",
    "swiglu": "gated-silu",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--keep", type=Path, help="directory for the runs")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        rows = [measure(name, folder, options.seeds, options.set) for name in options.variants]
    header = ("feed-forward", "inner width", "parameters", "loss (median)", "range", "CPU seconds")
    print(table(header, rows))
    print(f"\n{options.seeds} seeds, {machine(options.threads)}; {versions('torch')}")


def measure(name: str, folder: Path, seeds: int, settings: Sequence[str]) -> list[str]:
    """Return a row of the table: the runs of all seeds of a variant."""
    config = shape(name)
    changes = [word for pair in settings for word in ("--set", pair)]
    fields = {"feed_forward": config.feed_forward, "intermediate_size": config.intermediate_size}
    own = [word for key, value in fields.items() for word in ("--set", f"config.{key}={value}")]
    # seconds of CPU time: a machine may have other work
    losses = []
    seconds = []
    for seed in range(seeds):
        run = folder / f"t5-{name}-{seed}"
        seconds.append(pretrain(run, "t5", "--seed", seed, *own, *changes)["CPU seconds"])
        losses.append(RunHistory.read(run).validation[-1]["loss"])
    row = [
        name,
        str(config.intermediate_size),
        f"{parameters(config):,}",
        f"{statistics.median(losses):.4f}",
        f"{min(losses):.4f} to {max(losses):.4f}",
        f"{statistics.median(seconds):.0f}",
    ]
    print(" | ".join(row), file=sys.stderr, flush=True)
    return row


def shape(name: str) -> Any:
    """Return the configuration of a variant, with as many parameters as ``relu`` has."""
    family: Any = get_family("t5")
    config = replace(family.sizes()["tiny"], **family.recipe("tiny").config)
    config = replace(config, feed_forward=VARIANTS[name])
    if not config.gated:
        return config
    return replace(config, intermediate_size=round(config.intermediate_size * 2 / 3))


def parameters(config: Any) -> int:
    """Return the number of parameters of the language model."""
    return get_family("t5").weights(config, "seq2seq-lm").parameters()


if __name__ == "__main__":
    main()
