"""Replaced-token detection against masked language modelling at equal time, by minimal pairs.

    python -m benchmarks.equal_time PAIRS [PAIRS ...] [--minutes 10] [--seeds 3] [--threads 2]

PAIRS are tables of minimal pairs, such as BLiMP's and Zorro's (columns ``paradigm``, ``good`` and
``bad``). The same model, size tiny of the family that both objectives share, is trained on the
corpus of the package by its recipe, whose number of steps is set so that a run takes the given
minutes of CPU time on each thread, which other processes of the machine hardly change: two short
runs with all stages of the recipe measure the time per step. Models are scored by
``zoo eval --task minimal-pairs``, where chance is 0.5: masked language models by their
pseudo-log-likelihood, discriminators by the probability that all tokens are original; a
discriminator's generator is a masked language model, too.

``--keep DIR`` keeps the runs, and does not repeat those that it has.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks._common import machine, table, versions
from benchmarks.tiny_recipes import band_text, evaluate, pretrain
from zoo.training.logging.run_history import RunHistory

FAMILY = "electra"
OBJECTIVES: Mapping[str, tuple[str, ...]] = {
    "replaced-token-detection": (),
    "masked-lm": ("--objective", "masked-lm"),
}
SHORT = (60, 120)  # steps of the runs whose difference is the time per step
FIRST = 2  # steps of a run before them, which trains the tokenizer
MODELS = {"model": "", "generator": ", its generator"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--keep", type=Path, help="directory for the runs")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        for objective, arguments in OBJECTIVES.items():
            changes = [*arguments, *(w for pair in options.set for w in ("--set", pair))]
            seconds = seconds_per_step(folder / f"{objective}-short", changes)
            steps = round(options.minutes * 60 * options.threads / seconds)
            runs = {
                run: train(run, [*changes, "--seed", seed], steps)
                for seed in range(options.seeds)
                for run in [folder / f"{objective}-{seed}"]
            }
            rows += scores(objective, runs, options.pairs, options.threads)
            print(rows, file=sys.stderr, flush=True)
    print(table(["model", "steps", "minutes", *(path.stem for path in options.pairs)], rows))
    print(f"\n{machine(options.threads)}; {versions('torch', 'tokenizers')}")


def seconds_per_step(run: Path, arguments: list[object]) -> float:
    """Return the mean CPU time of a step, over all stages of the recipe."""
    train(run.with_name(f"{run.name}-{FIRST}"), arguments, FIRST)
    first, second = (train(run.with_name(f"{run.name}-{n}"), arguments, n) for n in SHORT)
    return (second - first) / (SHORT[1] - SHORT[0])


def train(run: Path, arguments: list[object], steps: int) -> float:
    """Train a run, unless it is there, and return its CPU seconds."""
    # evaluation takes the same time for both, and little of it
    every = ("--set", f"eval_steps={steps}", "--set", f"save_steps={steps}")
    return pretrain(run, FAMILY, "--max-steps", steps, *every, *arguments)["CPU seconds"]


def scores(
    objective: str, runs: Mapping[Path, float], pairs: list[Path], threads: int
) -> list[list[str]]:
    """Return a row for each model of runs, of which the CPU seconds are given."""
    steps = RunHistory.read(next(iter(runs))).steps
    minutes = band_text([seconds / 60 / threads for seconds in runs.values()], 1)
    rows = []
    for name, suffix in MODELS.items():
        if not all((run / name).exists() for run in runs):
            continue
        cells = [
            band_text([evaluate(run / name, "minimal-pairs", path)["accuracy"] for run in runs], 3)
            for path in pairs
        ]
        rows.append([objective + suffix, f"{steps:,}", minutes, *cells])
    return rows


if __name__ == "__main__":
    main()
