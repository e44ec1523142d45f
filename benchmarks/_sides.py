"""Training speed and memory of several sides of a benchmark, each in a process of its own.

The sides run one after another in each round, so that other load on the machine affects all alike.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._common import run_process, table

Measured = dict[str, Any]
Side = Callable[[Path, argparse.Namespace], Measured]


@dataclass
class SideTiming:
    """Measurements of a side, by round.

    Attributes:
        rates: tokens or samples per second.
        peaks: peak resident set size of the process, in MB.
        losses: losses that sides are compared by, of the last round.
    """

    rates: list[float] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


def add_side_options(parser: argparse.ArgumentParser, *, steps: int) -> None:
    """Add the options that such benchmarks share."""
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="a few steps, in one process")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)


def is_side(options: argparse.Namespace, sides: Mapping[str, Side]) -> bool:
    """Measure the side that ``--side`` names, if it names one, and return whether it does."""
    if options.side:
        name, scratch = options.side
        measured = sides[name](Path(scratch), options)
        Path(scratch, "result.json").write_text(json.dumps(measured), encoding="utf-8")
    return bool(options.side)


def run_side(
    module: str, name: str, side: Side, scratch: str, options: argparse.Namespace
) -> tuple[Measured, float]:
    """Return what a side measured, and its peak memory in MB.

    Args:
        module: module of the benchmark, which a process runs with the same arguments.
        name: name of the side.
        side: the side.
        scratch: folder that all sides share.
        options: options of the benchmark.
    """
    if options.smoke:  # in this process, whose memory says nothing then
        return side(Path(scratch), options), 1.0
    argv = [sys.executable, "-m", module, *sys.argv[1:], "--side", name, scratch]
    process = run_process(argv, {"OMP_NUM_THREADS": str(options.threads)})
    return json.loads(Path(scratch, "result.json").read_text("utf-8")), process.peak_mb


def alternate_sides(
    module: str, sides: Mapping[str, Side], scratch: str, options: argparse.Namespace
) -> dict[str, SideTiming]:
    """Measure the sides in turn, in a different order in each round."""
    timings = {name: SideTiming() for name in sides}
    names = list(sides)
    for turn in range(options.rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            measured, peak = run_side(module, name, sides[name], scratch, options)
            timings[name].rates.append(measured["rate"])
            timings[name].losses = measured["losses"]
            timings[name].peaks.append(peak)
        rates = ", ".join(f"{name} {timing.rates[-1]:,.0f}" for name, timing in timings.items())
        print(f"round {turn + 1} of {options.rounds}: {rates}", file=sys.stderr, flush=True)
    return timings


def require_equal_losses(
    timings: Mapping[str, SideTiming], names: Sequence[str], tolerance: float
) -> None:
    """End the benchmark unless the losses of all named sides are those of the last one.

    Args:
        timings: measurements by side.
        names: the sides.
        tolerance: largest relative difference.
    """
    *others, reference = names
    for name in others:
        pairs = zip(timings[name].losses, timings[reference].losses, strict=True)
        if not all(abs(mine - other) <= tolerance * abs(other) for mine, other in pairs):
            sys.exit(
                f"the losses of {name} and {reference} differ: {timings[name].losses}, "
                f"{timings[reference].losses}"
            )


def speed_table(timings: Mapping[str, SideTiming], unit: str, references: Sequence[str]) -> str:
    """Return a table of median speeds and memory, and their ratios to those of some sides.

    Args:
        timings: measurements by side.
        unit: unit of the speeds.
        references: sides that others are compared with; memory is compared with the first.
    """
    rates = {name: statistics.median(timing.rates) for name, timing in timings.items()}
    peaks = {name: statistics.median(timing.peaks) for name, timing in timings.items()}
    rows = [
        [
            name,
            f"{rates[name]:,.0f}",
            f"{min(timing.rates):,.0f} to {max(timing.rates):,.0f}",
            *(f"{rates[name] / rates[other]:.2f}x" for other in references),
            f"{peaks[name]:,.0f}",
            f"{peaks[name] / peaks[references[0]]:.2f}",
        ]
        for name, timing in timings.items()
    ]
    ratios = [f"of {name}" for name in references]
    memory = ["peak MB", f"of {references[0]}"]
    return table(["", f"{unit} (median)", "range", *ratios, *memory], rows)


def timed_steps(steps: int, warm_up: int, step: Callable[[int], tuple[float, int]]) -> Measured:
    """Return the rate of the steps after the first ones, and the losses of all.

    Args:
        steps: number of steps.
        warm_up: number of first steps that are not timed.
        step: function of the number of a step that returns its loss and what it counts.
    """
    losses = []
    total = 0
    start = 0.0
    for number in range(steps):
        if number == warm_up:
            total = 0
            start = time.perf_counter()
        loss, count = step(number)
        total += count
        losses.append(loss)
    return {"rate": total / (time.perf_counter() - start), "losses": losses}
