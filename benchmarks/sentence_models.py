"""Sentence models: embeddings of several sizes, and a reranker next to its encoder.

    python -m benchmarks.sentence_models MODEL --data DIR [--seeds 3] [--steps 60] [--pairs 1000]

MODEL is a sentence encoder, such as all-MiniLM-L6-v2 in the Hub's layout or in ours. DIR has the
files ``SICK_train.txt`` and ``SICK_trial.txt`` of SICK (Marelli et al. 2014), pairs with a
relatedness from 1 to 5.

MODEL is fine-tuned on the training pairs with CoSENT, with and without Matryoshka training, and as
a cross-encoder with binary cross-entropy, each with several seeds and the same number of steps and
pairs. The first table has Spearman's correlation of the similarity of the first numbers of each
embedding, the second compares encoder and reranker, with the time for a pair. Both are measured on
``--pairs`` pairs that are in no training data: the median over seeds and their range.
"""

import argparse
import csv
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import zoo
from benchmarks._common import machine, table, versions
from zoo.cli import cli
from zoo.metrics.ranks import spearman

DIMENSIONS = (384, 256, 128, 64, 32)
COLUMNS = {"--text": "sentence_A", "--pair": "sentence_B", "--label": "relatedness_score"}
SCALE = (1.0, 5.0)  # of the relatedness
Pairs = Sequence[tuple[str, str]]


def read_pairs(file: Path, count: int) -> tuple[list[tuple[str, str]], list[float]]:
    """Return pairs and their scores."""
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[:count]
    pairs = [(row[COLUMNS["--text"]], row[COLUMNS["--pair"]]) for row in rows]
    return pairs, [float(row[COLUMNS["--label"]]) for row in rows]


def run_zoo(*words: object) -> None:
    """Run a command of the zoo in this process."""
    cli.main([*map(str, words)], standalone_mode=False)


def finetune(
    model: object, task: str, train: Path, output: Path, settings: Mapping[str, Any]
) -> Path:
    """Train a model, and return its directory."""
    words = [word for option, column in COLUMNS.items() for word in (option, column)]
    changes = [w for name, value in settings.items() for w in ("--set", f"{name}={value}")]
    run_zoo(
        *("finetune", model, "--task", task, "--train", train, *words, "-o", output),
        *("--preset", "default", "--threads", "1", "--device", "cpu", "--quiet", *changes),
    )
    return output / "model"


def encoder_scores(model: Path, pairs: Pairs, dimensions: Sequence[int]) -> list[Any]:
    """Return the cosines of pairs at each number of leading dimensions, (pairs,) each."""
    loaded = zoo.load(model, backend="cpu", threads=1)
    sides = [loaded.embed([pair[k] for pair in pairs]) for k in (0, 1)]
    found = []
    for dim in dimensions:
        units = [x[:, :dim] / np.linalg.norm(x[:, :dim], axis=1, keepdims=True) for x in sides]
        found.append((units[0] * units[1]).sum(1))
    return found


def reranker_scores(model: Path, pairs: Pairs) -> Any:
    """Return the scores of pairs, (pairs,)."""
    loaded = zoo.load(model, backend="cpu", threads=1)
    return np.array([row["score"] for row in loaded.run("classify", list(pairs))])


def timed(function: Callable[[], Any], count: int) -> tuple[Any, float]:
    """Return what a function returns, and its milliseconds for each pair."""
    start = time.perf_counter()
    found = function()
    return found, 1000 * (time.perf_counter() - start) / count


def measure(options: argparse.Namespace, folder: Path) -> dict[str, list[Any]]:
    """Return the results of all seeds by name; correlations are in percent."""
    train = folder / "train.tsv"
    train.write_bytes((options.data / "SICK_train.txt").read_bytes())
    pairs, labels = read_pairs(options.data / "SICK_trial.txt", options.pairs)
    dims = [dim for dim in options.dimensions if dim <= options.dimensions[0]]
    known = np.array(labels)

    def correlations(scores: Sequence[Any]) -> list[float]:
        return [100 * spearman(row, known) for row in scores]

    run_zoo("convert", options.model, "-o", folder / "base", "--quiet")
    found: dict[str, list[Any]] = {
        "as published": [correlations(encoder_scores(folder / "base", pairs, dims))]
    }
    common = {
        "max_steps": options.steps,
        "batch_size": options.batch_size,
        "data.eval_fraction": 0.02,
        "max_seq_len": 48,
        "optimizer.learning_rate": options.learning_rate,
    }
    sizes = f"[{','.join(map(str, dims))}]"
    for seed in range(options.seeds):
        for name, arguments in (
            ("fine-tuned", {}),
            ("with Matryoshka", {"task_args.matryoshka": sizes}),
        ):
            settings = {**common, "seed": seed, **arguments}
            output = folder / f"{name}-{seed}".replace(" ", "-")
            model = finetune(folder / "base", "sentence-embedding", train, output, settings)
            scores, cost = timed(partial(encoder_scores, model, pairs, dims), len(pairs))
            found.setdefault(name, []).append(correlations(scores))
            found.setdefault(f"{name}, ms", []).append(cost)
        settings = {
            **common,
            "seed": seed,
            "task_args.score_range": f"[{SCALE[0]},{SCALE[1]}]",
            "metric_for_best_model": "spearman",
        }
        output = folder / f"reranker-{seed}"
        model = finetune(folder / "base", "reranker", train, output, settings)
        scores, cost = timed(partial(reranker_scores, model, pairs), len(pairs))
        found.setdefault("reranker", []).extend(correlations([scores]))
        found.setdefault("reranker, ms", []).append(cost)
    return found


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Return the median of values and their range."""
    middle = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def tables(found: Mapping[str, list[Any]], dims: Sequence[int]) -> str:
    """Return both tables."""
    names = ("as published", "fine-tuned", "with Matryoshka")
    rows = [
        [str(dim), *(spread([seed[k] for seed in found[name]]) for name in names)]
        for k, dim in enumerate(dims)
    ]
    first = table(["dimensions", *names], rows)
    rows = [
        ["encoder", spread([seed[0] for seed in found["fine-tuned"]])],
        ["reranker", spread(found["reranker"])],
    ]
    for row, name in zip(rows, ("fine-tuned, ms", "reranker, ms"), strict=True):
        row.append(spread(found[name], 2))
    return f"{first}\n\n{table(['', 'Spearman', 'ms a pair'], rows)}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--dimensions", type=int, nargs="+", default=DIMENSIONS)
    parser.add_argument("--json", type=Path, help="file of all results")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, Path(folder))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(tables(found, options.dimensions))
    print(f"\n{machine(1)}; {versions('plm-zoo', 'torch')}")


if __name__ == "__main__":
    main()
