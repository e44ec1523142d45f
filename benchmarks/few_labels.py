"""Few labels: SetFit, LoRA and full fine-tuning of a sentence encoder, next to ``setfit``.

    python -m benchmarks.few_labels MODEL --data DIR [--labels 8 32 128 1000] [--seeds 3]
    python -m benchmarks.few_labels MODEL --data DIR --sides setfit full --reference PYTHON

MODEL is a sentence encoder in the Hub's layout. DIR has the tables ``train.tsv`` and ``dev.tsv`` of
texts and labels, without a header. A seed draws as many rows of each label, the same for all sides.
PYTHON is an interpreter with the package ``setfit``; without it, nothing is compared.

SetFit has batches of 16 pairs, a learning rate of 2e-5, up to 20 pairs of each kind for each text,
and at most ``--pairs`` pairs, on both sides. Fine-tuning has batches of 16 texts, the learning rate
5e-5 (LoRA 1e-3), and ``--steps`` or five epochs, whichever is more, up to ``--max-steps``; the
weights after the last step are evaluated. Prints a row per number of labels and side: the mean
accuracy over the seeds, their range, the bootstrap interval of 95 % of that mean over the rows of
the evaluation, and for SetFit whether the ranges of both sides overlap.

``--results FILE`` keeps the result of each run in a file, and does not repeat the runs in it.
"""

import argparse
import csv
import itertools
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

from benchmarks._common import RunResults, machine, table, versions

SIDES = ("setfit", "lora", "full")
REFERENCE = "setfit, reference"
MOST_ITERATIONS = 20  # of SetFit, as in the paper
BATCH = 16
Rows = list[tuple[str, str]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--labels", type=int, nargs="+", default=[8, 32, 128, 1000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--pairs", type=int, default=5120, help="largest number of pairs")
    parser.add_argument("--steps", type=int, default=100, help="fewest steps of fine-tuning")
    parser.add_argument("--max-steps", type=int, default=10_000, help="most of them")
    parser.add_argument("--eval-rows", type=int, help="rows to evaluate on, drawn at random")
    parser.add_argument("--results", type=Path, help="file of the results of single runs")
    parser.add_argument("--reference", type=Path, help="a Python with setfit")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    sides = [*([REFERENCE] if options.reference else []), *options.sides]
    scores = measure(sides, options)
    rows = [
        [str(count), side, *cells(scores[count, side], scores.get((count, REFERENCE)), side)]
        for count in options.labels
        for side in sides
    ]
    header = ["labels", "side", "accuracy", "range", "95 % interval", "of the reference"]
    print(table(header, rows))
    print(f"\n{machine(options.threads)}; {versions('torch')}; {options.seeds} seeds")


def measure(
    sides: Sequence[str], options: argparse.Namespace
) -> dict[tuple[int, str], list[list[bool]]]:
    """Return number of labels and side -> which rows each seed labels correctly."""
    names = ("model", "data", "pairs", "steps", "max_steps", "eval_rows")
    results = RunResults(options.results, {name: getattr(options, name) for name in names})
    known = results.known
    scores: dict[tuple[int, str], list[list[bool]]] = {}
    runs = itertools.product(range(options.seeds), options.labels, sides)
    with tempfile.TemporaryDirectory() as scratch:
        for seed, count, side in runs:
            name = f"{count} labels, seed {seed}, {side}"
            if name not in known:
                folder = Path(scratch, name)
                folder.mkdir()
                tables = write_tables(folder, count, seed, options)
                results.add(name, run_side(side, folder, tables, count, seed, options))
            scores.setdefault((count, side), []).append(known[name])
            print(f"{name}: {statistics.mean(known[name]):.4f}", file=sys.stderr, flush=True)
    return scores


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
    evaluation = read(options.data / "dev.tsv")
    random.Random(0).shuffle(evaluation)  # the same rows for all seeds
    evaluation = evaluation[: options.eval_rows]
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
    steps = min(options.pairs, 2 * count * iterations) // BATCH
    if side == REFERENCE:
        output = folder / "reference.json"
        words = ["-m", "benchmarks._setfit_side", options.model, *tables, seed]
        words += [iterations, steps, output]
        subprocess.run([options.reference, *map(str, words)], check=True, stdout=sys.stderr)
        correct: list[bool] = json.loads(output.read_text())["correct"]
        return correct
    settings: dict[str, Any] = {"task": "setfit", "task_args": {"num_iterations": iterations}}
    if side != "setfit":
        steps = min(options.max_steps, max(options.steps, 5 * count // BATCH))
        settings = {
            "task": "text-classification",
            "batch_size": BATCH,
            "optimizer": {"learning_rate": 5e-5},
            "task_args": {"pooling": "mean"},
        }
    # no checkpoint is selected by the evaluation
    settings |= {"max_steps": steps, "eval_steps": steps}
    if side == "lora":
        settings["adapter"] = {"method": "lora"}
        settings["optimizer"] = {"learning_rate": 1e-3}
    return evaluate(train_zoo(settings, folder, tables, seed, options), tables[1])


def train_zoo(
    settings: Mapping[str, Any],
    folder: Path,
    tables: tuple[Path, Path],
    seed: int,
    options: argparse.Namespace,
) -> Path:
    """Train a model, and return its directory."""
    import torch

    from zoo.finetuning.runs import FineTuneRun
    from zoo.training.distributed.context import DistContext

    with tables[1].open(newline="", encoding="utf-8") as file:
        first = [(row["text"], row["label"]) for row in csv.DictReader(file)][:BATCH]
    shared = {
        "init_from": {"model": str(options.model)},
        # a run evaluates at its end, whose result is not used
        "data": {"train": [str(tables[0])], "eval": [str(write(folder / "few.csv", first))]},
        "seed": seed,
        "report_to": [],
    }
    dist = DistContext(0, 1, torch.device("cpu"))
    return FineTuneRun({**shared, **settings}, dist, folder / "run").start().model


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
    of_rows = np.array(scores, float).mean(0)  # of the seeds, (rows,)

    def accuracy(drawn: Any) -> Mapping[str, float]:
        return {"accuracy": float(of_rows[drawn].mean())}

    low, high = bootstrap_samples(accuracy, len(of_rows), 0)["accuracy"]
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
