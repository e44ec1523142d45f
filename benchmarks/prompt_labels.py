"""Order and labels of the examples in a prompt: sentiment (SST-2) with a tiny language model.

    python -m benchmarks.prompt_labels FOLDER [--seeds 3] [--selections 10] [--keep DIR]

FOLDER has ``train.tsv`` and ``dev.tsv`` of SST-2 without headers: sentence, tab, label. The
commands are a reader's, for each seed: ``zoo pretrain gpt`` (size tiny, on the corpus of the
package, with 256 positions), ``zoo finetune --task causal-lm`` on documents of five prompts with
their true labels, and ``zoo eval --task prompt`` of both models. ``--keep`` keeps the models and
the results, and repeats none that it has.

Sentences have at most 12 words, so that four examples and the text fit. The documents come from
sentences of the training data that are neither examples nor evaluated; as many texts of each
label are evaluated, so that guessing has an accuracy of a half.

Prints, for each model, the accuracy by labels of the examples (Min et al. 2022, arXiv:2202.12837),
and over all 24 orders of four examples (Lu et al. 2022, arXiv:2104.08786): means over the seeds
with the 95 % interval of Student's t, and the value of each seed, which is a mean over selections
of examples; in brackets its bootstrap interval over texts and selections.
"""

import argparse
import csv
import json
import os
import random
import resource
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._common import RunResults, machine, student, table, versions, zoo

MAX_WORDS = 12
POOL = 400  # Sentences that examples are drawn from.
SHOTS = 4
TEMPLATE = "{text}. It was {label}"
WORDS = {"0": "bad", "1": "good"}
SEPARATOR = ".\n"
LABELS = ("gold", "random", "permuted", "none")
RESUMED = ("--auto-resume", "-q")  # Continues a run that was interrupted.
LABEL_NAMES = {"gold": "true", "1 wrong": "all wrong", "none": "no examples"}
Rows = list[tuple[str, str]]  # Text and label.


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--rows", type=int, default=100, help="texts of each label, at most")
    parser.add_argument("--seeds", type=int, default=3, help="models of each training")
    parser.add_argument("--selections", type=int, default=10, help="of examples, for labels")
    parser.add_argument("--order-selections", type=int, default=3, help="of examples, for orders")
    parser.add_argument("--steps", type=int, help="of pretraining; by default the recipe's")
    parser.add_argument("--tuning-steps", type=int, default=300, help="of fine-tuning")
    parser.add_argument("--batch-size", type=int, default=16, help="rows of a training step")
    parser.add_argument("--keep", type=Path, help="directory for tables, models and results")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        write_tables(options.data, folder, options.rows)
        names = ("rows", "steps", "tuning_steps", "batch_size")
        settings = {name: getattr(options, name) for name in names}
        results = RunResults(folder / "results.jsonl", settings)
        labels: dict[str, list[Any]] = {}
        orders: dict[str, list[Any]] = {}
        for seed in range(options.seeds):
            for name, model in train_models(options, folder, seed).items():
                path = f"{name}, seed {seed}, "
                key = f"{path}labels of {options.selections} selections"
                if key not in results.known:
                    results.add(key, evaluate_labels(model, folder, options.selections))
                labels.setdefault(name, []).append(results.known[key])
                key = f"{path}orders of {options.order_selections} selections"
                if key not in results.known:
                    results.add(key, evaluate_orders(model, folder, options.order_selections))
                orders.setdefault(name, []).append(results.known[key])
    header = ["model", "labels", "accuracy", "by seed", "minus true labels", "by seed"]
    print(table(header, [row for name in labels for row in label_rows(name, labels[name])]))
    print()
    header = ["model", "accuracy", "by seed", "lowest and highest", "deviation", "by seed"]
    header.append("worst and best order")
    print(table(header, [order_row(name, orders[name]) for name in orders]))
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{machine(options.threads)}; {versions('torch')}")
    print(f"CPU seconds of commands: {usage.ru_utime + usage.ru_stime:.0f}")


def write_tables(data: Path, folder: Path, rows: int) -> None:
    """Write the texts, the pool of examples, and the documents that the model is tuned on."""
    rng = random.Random(0)
    sentences = read_sentences(data / "train.tsv")
    rng.shuffle(sentences)
    write_table(folder / "pool.csv", sentences[:POOL])
    texts: Rows = []
    by_label: dict[str, Rows] = {}
    for text, label in read_sentences(data / "dev.tsv"):
        by_label.setdefault(label, []).append((text, label))
    count = min(rows, *map(len, by_label.values()))
    for label in sorted(by_label):
        texts += rng.sample(by_label[label], count)
    write_table(folder / "texts.csv", texts)
    documents = []
    tuning_rows = sentences[POOL:]
    for _ in range(10):  # Each sentence is in ten documents, next to different ones.
        rng.shuffle(tuning_rows)
        for start in range(0, len(tuning_rows), SHOTS + 1):
            prompts = tuning_rows[start : start + SHOTS + 1]
            filled = [TEMPLATE.format(text=text, label=WORDS[label]) for text, label in prompts]
            documents.append({"text": SEPARATOR.join(filled)})
    lines = [json.dumps(document) for document in documents]
    (folder / "documents.jsonl").write_text("\n".join(lines), "utf-8")


def read_sentences(file: Path) -> Rows:
    """Return the short sentences of a table."""
    rows = []
    for line in file.read_text("utf-8").splitlines():
        text, label = line.split("\t")[:2]
        if len(text.split()) <= MAX_WORDS:
            rows.append((text, label))
    return rows


def write_table(file: Path, rows: Rows) -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened).writerows([("text", "label"), *rows])


def train_models(options: argparse.Namespace, folder: Path, seed: int) -> Mapping[str, Path]:
    """Train both models with a seed, unless they are in the folder."""
    pretrained = folder / f"gpt-{seed}"
    tuned = folder / f"tuned-{seed}"
    batch_size = ["--batch-size", options.batch_size]
    if not (pretrained / "model").is_dir():
        settings = ["--max-seq-len", 256, "--set", "config.max_positions=256", *batch_size]
        if options.steps:
            settings += ["--max-steps", options.steps]
        zoo("pretrain", "gpt", *settings, "--seed", seed, "--offline", "-o", pretrained, *RESUMED)
    if not (tuned / "model").is_dir():
        data = ["--task", "causal-lm", "--train", folder / "documents.jsonl"]
        settings = ["--max-seq-len", 256, "--max-steps", options.tuning_steps]
        settings += [*batch_size, "--learning-rate", 1e-3, "--seed", seed]
        zoo("finetune", pretrained / "model", *data, *settings, "-o", tuned, *RESUMED)
    return {"pretrained": pretrained / "model", "tuned on prompts": tuned / "model"}


def evaluate(model: Path, folder: Path, *options: object) -> dict[str, Any]:
    """Return the result of an evaluation of prompts."""
    words = ",".join(f"{label}={word}" for label, word in WORDS.items())
    task = ["--task", "prompt", "--eval", folder / "texts.csv", "--template", TEMPLATE]
    task += ["--label-words", words, "--shots", SHOTS, "--shots-from", folder / "pool.csv"]
    task += ["--separator", SEPARATOR, "--calibrate", "--no-record", "--json"]
    result: dict[str, Any] = json.loads(zoo("eval", model, *task, *options))
    return result


def evaluate_labels(model: Path, folder: Path, selections: int) -> list[dict[str, Any]]:
    """Return a record for each way to label examples."""
    conditions = ["--seeds", selections, "--wrong-labels", 1]
    for labels in LABELS:
        conditions += ["--shot-labels", labels]
    records: list[dict[str, Any]] = evaluate(model, folder, *conditions)["conditions"]
    return records


def evaluate_orders(model: Path, folder: Path, selections: int) -> dict[str, float]:
    """Return the accuracy over all orders of some selections, and how much it varies."""
    result = evaluate(model, folder, "--seeds", selections, "--orders", "all")
    order = result["variation"]["order"]
    metrics = result["metrics"]
    return {
        "accuracy": metrics["accuracy"],
        "lowest": metrics["lowest"],
        "highest": metrics["highest"],
        "deviation": order["deviation"],
        "worst_order": order["lowest"],
        "best_order": order["highest"],
    }


def label_rows(name: str, seeds: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[str]]:
    """Return a row for each way to label examples, from the records of each seed."""
    rows = []
    for records in zip(*seeds, strict=True):
        labels = records[0]["shot labels"]
        cells = [name, LABEL_NAMES.get(labels, labels)]
        cells += interval_cells(records, ("accuracy", "low", "high"))
        if labels == LABELS[0]:
            cells += ["", ""]
        else:
            keys = ("difference", "difference_low", "difference_high")
            cells += interval_cells(records, keys, sign="+")
        rows.append(cells)
    return rows


def interval_cells(
    records: Sequence[Mapping[str, Any]], keys: tuple[str, str, str], sign: str = ""
) -> list[str]:
    """Return the mean of the seeds, and the value of each with its interval over the texts."""
    values = [record[keys[0]] for record in records]
    by_seed = []
    for record in records:
        value, low, high = (f"{record[key]:{sign}.3f}" for key in keys)
        by_seed.append(f"{value} ({low} to {high})")
    return [seed_cells(values, sign)[0], ", ".join(by_seed)]


def order_row(name: str, seeds: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a row on orders, from the results of each seed."""
    lowest = min(result["lowest"] for result in seeds)
    highest = max(result["highest"] for result in seeds)
    worst = statistics.fmean(result["worst_order"] for result in seeds)
    best = statistics.fmean(result["best_order"] for result in seeds)
    return [
        name,
        *seed_cells([result["accuracy"] for result in seeds]),
        f"{lowest:.3f} to {highest:.3f}",
        *seed_cells([result["deviation"] for result in seeds]),
        f"{worst:.3f} to {best:.3f}",
    ]


def seed_cells(values: Sequence[float], sign: str = "") -> list[str]:
    """Return the mean of the seeds with its interval, and the value of each."""
    mean = f"{statistics.fmean(values):{sign}.3f}"
    if len(values) > 1:
        mean += f" {student(values)}"
    return [mean, ", ".join(f"{value:{sign}.3f}" for value in values)]


if __name__ == "__main__":
    main()
