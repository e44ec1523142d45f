"""Sentence models: embeddings of several sizes, and a reranker next to its encoder.

    python -m benchmarks.sentence_models MODEL --data DIR [--seeds 3] [--steps 60] [--pairs 500]
    python -m benchmarks.sentence_models MODEL --data DIR --seeds 0 --static-seeds 3

MODEL is a sentence encoder, such as all-MiniLM-L6-v2 in the Hub's layout or in ours. DIR has the
files ``SICK_train.txt`` and ``SICK_trial.txt`` of SICK (Marelli et al. 2014), pairs with a
relatedness from 1 to 5.

MODEL is fine-tuned on the training pairs with CoSENT, with and without Matryoshka training, and as
a cross-encoder with binary cross-entropy, each with several seeds and the same number of steps and
pairs. The first table has Spearman's correlation, times 100, of relatedness and the similarity of
the first numbers of each embedding: the median over seeds and their range, and how much Matryoshka
training adds with the same seed. The second compares encoder, reranker and static vectors that are
distilled from MODEL, without data (``zoo export --to static``) and, with ``--static-seeds``, on the
sentences of the training pairs (``zoo distill --student static``), with the time to score a pair of
two new texts, taking turns. ``--seeds 0`` only compares MODEL and its static vectors.

All are measured on the first ``--pairs`` pairs of ``SICK_trial.txt``, which are left out of the
training data; many of their sentences are in other pairs there.
"""

import argparse
import csv
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import zoo
from benchmarks._common import alternate, machine, table, versions
from zoo.cli import cli
from zoo.metrics.ranks import spearman

DIMENSIONS = (384, 256, 128, 64, 32)
COLUMNS = {"--text": "sentence_A", "--pair": "sentence_B", "--label": "relatedness_score"}
SCALE = (1.0, 5.0)  # of the relatedness
PUBLISHED = "as published"
TUNED = "fine-tuned"
MATRYOSHKA = "with Matryoshka"
RERANKER = "reranker"
VECTORS = "static vectors of it"
LEARNED = "static vectors, trained"
STATIC = "static"  # target of an export, backend, and student
ROWS = (PUBLISHED, VECTORS, LEARNED, TUNED, RERANKER)  # of the second table
TIMED = 200  # pairs whose scores are timed
# the loss of quality is what is measured
STATIC_GATE = ("--max-drop", "1", "--quiet")
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
        "finetune",
        model,
        "--task",
        task,
        "--train",
        train,
        *words,
        "-o",
        output,
        "--preset",
        "default",
        "--threads",
        "1",
        "--device",
        "cpu",
        "--quiet",
        *changes,
    )
    return output / "model"


def distil(teacher: Path, train: Path, output: Path, seed: int) -> Path:
    """Train static vectors on sentences, and return their directory."""
    run_zoo(
        "distill",
        "--teacher",
        teacher,
        "--student",
        STATIC,
        "--train",
        train,
        "-o",
        output,
        "--seed",
        seed,
        "--threads",
        "1",
        "--device",
        "cpu",
        "--quiet",
    )
    return output / "model"


def load(model: Path) -> Any:
    """Load a model on one thread."""
    backend: Any = STATIC if model.name == STATIC else "cpu"
    return zoo.load(model, backend=backend, threads=1)


def encoder_scores(model: Path, pairs: Pairs, dimensions: Sequence[int]) -> list[Any]:
    """Return the cosines of pairs at each number of leading dimensions, (pairs,) each."""
    loaded = load(model)
    sides = [loaded.embed([pair[k] for pair in pairs]) for k in (0, 1)]
    found = []
    for dim in dimensions:
        units = [x[:, :dim] / np.linalg.norm(x[:, :dim], axis=1, keepdims=True) for x in sides]
        found.append((units[0] * units[1]).sum(1))
    return found


def reranker_scores(model: Path, pairs: Pairs) -> Any:
    """Return the scores of pairs, (pairs,)."""
    loaded = load(model)
    return np.array([row["score"] for row in loaded.run("classify", list(pairs))])


def split(data: Path, train: Path, count: int) -> tuple[list[tuple[str, str]], list[float]]:
    """Write the training pairs, and return others and their scores."""
    pairs, labels = read_pairs(data / "SICK_trial.txt", count)
    held = {frozenset(pair) for pair in pairs}
    header, *lines = (data / "SICK_train.txt").read_text("utf-8").splitlines()
    known, _ = read_pairs(data / "SICK_train.txt", len(lines))
    rows = zip(lines, known, strict=True)
    kept = [line for line, pair in rows if frozenset(pair) not in held]
    train.write_text("\n".join([header, *kept]) + "\n", encoding="utf-8")
    return pairs, labels


def write_sentences(train: Path, held: Pairs, file: Path) -> Path:
    """Write the sentences of training pairs that are in none of the pairs to measure."""
    pairs, _ = read_pairs(train, sum(1 for _ in train.open(encoding="utf-8")))
    known = {text for pair in held for text in pair}
    texts = dict.fromkeys(text for pair in pairs for text in pair if text not in known)
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return file


def measure(options: argparse.Namespace, folder: Path) -> dict[str, list[Any]]:
    """Return the results of all seeds by name; correlations are in percent."""
    train = folder / "train.tsv"
    pairs, labels = split(options.data, train, options.pairs)
    dims = options.dimensions
    known = np.array(labels)

    def correlations(scores: Sequence[Any]) -> list[float]:
        return [100 * spearman(row, known) for row in scores]

    base = folder / "base"
    static = folder / STATIC
    run_zoo("convert", options.model, "-o", base, "--quiet")
    size = options.static_dim
    run_zoo("export", base, "--to", STATIC, "--dim", size, "-o", static, *STATIC_GATE)
    found: dict[str, list[Any]] = {
        PUBLISHED: [correlations(encoder_scores(base, pairs, dims))],
        VECTORS: [correlations(encoder_scores(static, pairs, [size]))],
    }
    models = {PUBLISHED: base, VECTORS: static}
    common = {
        "max_steps": options.steps,
        "batch_size": options.batch_size,
        "data.eval_fraction": 0.02,
        "max_seq_len": 48,
        "optimizer.learning_rate": options.learning_rate,
    }
    sizes = {"task_args.matryoshka": f"[{','.join(map(str, dims))}]"}
    ranking = {
        "task_args.score_range": f"[{SCALE[0]},{SCALE[1]}]",
        "metric_for_best_model": "spearman",
    }
    for seed in range(options.seeds):
        for name, arguments in ((TUNED, {}), (MATRYOSHKA, sizes)):
            settings = {**common, "seed": seed, **arguments}
            output = folder / f"{name}-{seed}".replace(" ", "-")
            models[name] = finetune(base, "sentence-embedding", train, output, settings)
            scores = encoder_scores(models[name], pairs, dims)
            found.setdefault(name, []).append(correlations(scores))
        settings = {**common, "seed": seed, **ranking}
        output = folder / f"{RERANKER}-{seed}"
        models[RERANKER] = finetune(base, RERANKER, train, output, settings)
        scores = [reranker_scores(models[RERANKER], pairs)]
        found.setdefault(RERANKER, []).append(correlations(scores))
    for seed in range(options.static_seeds):
        sentences = write_sentences(train, pairs, folder / "sentences.txt")
        models[LEARNED] = distil(base, sentences, folder / f"{STATIC}-{seed}", seed)
        scores = encoder_scores(models[LEARNED], pairs, [dims[0]])
        found.setdefault(LEARNED, []).append(correlations(scores))
    timed = {name: model for name, model in models.items() if name in ROWS}
    return {**found, **times(timed, pairs, options.rounds)}


def times(models: Mapping[str, Path], pairs: Pairs, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds to score a pair, of each round."""
    pairs = list(pairs[:TIMED])
    texts = [text for pair in pairs for text in pair]
    loaded = {name: load(model) for name, model in models.items()}
    contenders: dict[str, Callable[[], object]] = {
        name: partial(model.run, "classify", pairs)
        if name == RERANKER
        else partial(model.embed, texts)
        for name, model in loaded.items()
    }
    timings = alternate(contenders, rounds=rounds)
    return {
        f"{name}, ms": [1000 * seconds / len(pairs) for seconds in timing.seconds]
        for name, timing in timings.items()
    }


def spread(values: Sequence[float], digits: int = 1, sign: str = "") -> str:
    """Return the median of values and their range."""
    shown = [f"{v:{sign}.{digits}f}" for v in (statistics.median(values), min(values), max(values))]
    return shown[0] if len(values) == 1 else f"{shown[0]} ({shown[1]} to {shown[2]})"


def tables(found: Mapping[str, list[Any]], dims: Sequence[int]) -> str:
    """Return both tables; without seeds, only the second one."""
    names = (PUBLISHED, TUNED, MATRYOSHKA)
    encoder = statistics.median(found[f"{PUBLISHED}, ms"])
    rows = [
        [
            name,
            spread([seed[0] for seed in found[name]]),
            spread(found[f"{name}, ms"], 2),
            f"{statistics.median(found[f'{name}, ms']) / encoder:.2g}",
        ]
        for name in ROWS
        if name in found
    ]
    second = table(["", "Spearman", "ms for a pair", "of the first"], rows)
    if TUNED not in found:
        return second
    rows = []
    for k, dim in enumerate(dims):
        columns = [[seed[k] for seed in found[name]] for name in names]
        gains = [after - before for before, after in zip(columns[1], columns[2], strict=True)]
        rows.append([str(dim), *map(spread, columns), spread(gains, sign="+")])
    return f"{table(['dimensions', *names, 'gain of Matryoshka'], rows)}\n\n{second}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5, help="of timing")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--dimensions", type=int, nargs="+", default=DIMENSIONS)
    parser.add_argument("--static-dim", type=int, default=256)
    parser.add_argument("--static-seeds", type=int, default=0, help="of trained static vectors")
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
