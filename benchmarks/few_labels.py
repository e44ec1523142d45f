"""Few labels: SetFit, LoRA and full fine-tuning of a sentence encoder, next to ``setfit``.

    python -m benchmarks.few_labels MODEL --data DIR [--labels 8 32 128 1000] [--seeds 3]
    python -m benchmarks.few_labels MODEL --data DIR --sides setfit full --reference PYTHON

MODEL is a sentence encoder in the Hub's layout. DIR has the tables ``train.tsv`` and ``dev.tsv`` of
texts and labels, without a header. A seed draws as many rows of each label, the same for all sides.
PYTHON is an interpreter with the package ``setfit``; without it, nothing is compared.

SetFit has one epoch of batches of 16 pairs, a learning rate of 2e-5, and as many pairs for each
text as ``--pairs`` allows, on both sides. Fine-tuning has batches of 16 texts, the learning rate
5e-5 (LoRA 1e-3), and 100 steps or five epochs, whichever is more; the weights after the last step
are evaluated. Prints a row per number of labels and side: the mean accuracy over the seeds, their
range, the bootstrap interval of 95 % of the run with the median, and for SetFit whether the ranges
of both sides overlap.
"""

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._common import machine, table, versions

SIDES = ("setfit", "lora", "full")
REFERENCE = "setfit, reference"
MOST_ITERATIONS = 20  # of SetFit, as in the paper
Rows = list[tuple[str, str]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--labels", type=int, nargs="+", default=[8, 32, 128, 1000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--pairs", type=int, default=5120, help="largest number of pairs")
    parser.add_argument("--max-steps", type=int, default=0, help="end each run early")
    parser.add_argument("--eval-rows", type=int, help="rows to evaluate on")
    parser.add_argument("--reference", type=Path, help="a Python with setfit")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for count in options.labels:
            rows += compare(count, Path(scratch), options)
    header = ["labels", "side", "accuracy", "range", "95 % interval", "of the reference"]
    print(table(header, rows))
    print(f"\n{machine(options.threads)}; {versions('torch')}; {options.seeds} seeds")


def compare(count: int, scratch: Path, options: argparse.Namespace) -> list[list[str]]:
    """Return the rows of the table for a number of labels."""
    sides = [*([REFERENCE] if options.reference else []), *options.sides]
    scores: dict[str, list[list[bool]]] = {side: [] for side in sides}
    for seed in range(options.seeds):
        folder = scratch / f"{count}-{seed}"
        folder.mkdir()
        train, evaluation = write_tables(folder, count, seed, options)
        for side in sides:
            correct = run_side(side, folder, (train, evaluation), count, seed, options)
            scores[side].append(correct)
            accuracy = statistics.mean(correct)
            print(f"{count} labels, seed {seed}, {side}: {accuracy:.4f}", file=sys.stderr)
    return [[str(count), side, *cells(scores[side], scores.get(REFERENCE), side)] for side in sides]


def write_tables(
    folder: Path, count: int, seed: int, options: argparse.Namespace
) -> tuple[Path, Path]:
    """Write the rows to train and to evaluate on; return the files."""
    rows = read(options.data / "train.tsv")
    random.Random(seed).shuffle(rows)
    by_label: dict[str, Rows] = {}
    for text, label in rows:
        by_label.setdefault(label, []).append((text, label))
    each = count // len(by_label)
    drawn = [row for label in sorted(by_label) for row in by_label[label][:each]]
    evaluation = read(options.data / "dev.tsv")[: options.eval_rows]
    return write(folder / "train.csv", drawn), write(folder / "eval.csv", evaluation)


def read(path: Path) -> Rows:
    """Return the texts and labels of a table without a header."""
    with path.open(encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t")[:2]) for line in file]  # type: ignore[misc]


def write(path: Path, rows: Rows) -> Path:
    """Write a table with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


def run_side(
    side: str,
    folder: Path,
    tables: tuple[Path, Path],
    count: int,
    seed: int,
    options: argparse.Namespace,
) -> list[bool]:
    """Train a side, and return which rows of the evaluation it labels correctly."""
    iterations = max(1, min(MOST_ITERATIONS, options.pairs // (2 * count)))
    if side == REFERENCE:
        output = folder / "reference.json"
        words = ["-m", "benchmarks._setfit_side", options.model, *tables, seed, iterations, output]
        subprocess.run([options.reference, *map(str, words)], check=True, stdout=sys.stderr)
        correct: list[bool] = json.loads(output.read_text())["correct"]
        return correct
    return evaluate(train_zoo(side, folder, tables, count, seed, iterations, options), tables[1])


def train_zoo(
    side: str,
    folder: Path,
    tables: tuple[Path, Path],
    count: int,
    seed: int,
    iterations: int,
    options: argparse.Namespace,
) -> Path:
    """Train a model, and return its directory."""
    import torch

    from zoo.finetuning.runs import FineTuneRun
    from zoo.training.distributed.context import DistContext

    settings: dict[str, Any] = {
        "init_from": {"model": str(options.model)},
        "data": {"train": [str(tables[0])], "eval": [str(tables[1])]},
        "seed": seed,
        "report_to": [],
    }
    if side == "setfit":
        settings |= {"task": "setfit", "task_args": {"num_iterations": iterations}}
        if options.max_steps:
            settings["max_steps"] = options.max_steps
    else:
        steps = options.max_steps or max(100, 5 * count // 16)
        settings |= {
            "task": "text-classification",
            "batch_size": 16,
            "max_steps": steps,
            "eval_steps": steps,  # no checkpoint is selected by the evaluation
            "optimizer": {"learning_rate": 5e-5},
            "task_args": {"pooling": "mean"},
        }
    if side == "lora":
        settings["adapter"] = {"method": "lora"}
        settings["optimizer"] = {"learning_rate": 1e-3}
    dist = DistContext(0, 1, torch.device("cpu"))
    return FineTuneRun(settings, dist, folder / side).start().model


def evaluate(model: Path, evaluation: Path) -> list[bool]:
    """Return which rows a model labels correctly."""
    import zoo

    loaded = zoo.load(model, backend="cpu", threads=1)
    with evaluation.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    results = loaded.classify([row["text"] for row in rows])
    return [result["label"] == row["label"] for result, row in zip(results, rows, strict=True)]


def cells(
    scores: Sequence[Sequence[bool]], reference: Sequence[Sequence[bool]] | None, side: str
) -> list[str]:
    """Return mean, range and interval of the runs of a side, and how it compares."""
    import numpy as np

    from zoo.metrics.intervals import bootstrap_samples

    means = [statistics.mean(correct) for correct in scores]
    median = np.array(scores[means.index(sorted(means)[len(means) // 2])], float)

    def accuracy(drawn: Any) -> Mapping[str, float]:
        return {"accuracy": float(median[drawn].mean())}

    low, high = bootstrap_samples(accuracy, len(median), 0)["accuracy"]
    verdict = ""
    if side == "setfit" and reference is not None:
        others = [statistics.mean(correct) for correct in reference]
        overlaps = max(means) >= min(others) and min(means) <= max(others)
        verdict = "ranges overlap" if overlaps else "ranges differ"
    return [
        f"{statistics.mean(means):.4f}",
        f"{min(means):.4f} to {max(means):.4f}",
        f"{low:.4f} to {high:.4f}",
        verdict,
    ]


if __name__ == "__main__":
    main()
