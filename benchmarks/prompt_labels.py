"""Order and labels of the examples in a prompt: sentiment (SST-2) with a tiny language model.

    python -m benchmarks.prompt_labels FOLDER [--seeds 10] [--order-seeds 3] [--keep DIR]

FOLDER has ``train.tsv`` and ``dev.tsv`` of SST-2 without headers: sentence, tab, label. The
commands are a reader's: ``zoo pretrain gpt`` (size tiny, on the corpus of the package, with 256
positions), ``zoo finetune --task causal-lm`` on documents of five prompts with their true labels,
and ``zoo eval --task prompt`` of both models. ``--keep`` keeps the models, and trains none that it
has.

Sentences have at most 12 words, so that four examples and the text fit. The documents come from
sentences of the training data that are neither examples nor evaluated; as many texts of each
label are evaluated, so that guessing has an accuracy of a half.

Prints, for each model, the accuracy by labels of the examples (Min et al. 2022, arXiv:2202.12837),
and over all 24 orders of four examples (Lu et al. 2022, arXiv:2104.08786).
"""

import argparse
import csv
import json
import os
import random
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._common import machine, table, versions, zoo

MAX_WORDS = 12
POOL = 400  # Sentences that examples are drawn from.
SHOTS = 4
TEMPLATE = "{text}. It was {label}"
WORDS = {"0": "bad", "1": "good"}
SEPARATOR = ".\n"
LABELS = ("gold", "random", "permuted", "none")
LABEL_NAMES = {"gold": "true", "1 wrong": "all wrong", "none": "no examples"}
Rows = list[tuple[str, str]]  # Text and label.


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--rows", type=int, default=100, help="texts of each label, at most")
    parser.add_argument("--seeds", type=int, default=10, help="selections for labels")
    parser.add_argument("--order-seeds", type=int, default=3, help="selections for orders")
    parser.add_argument("--steps", type=int, help="of pretraining; by default the recipe's")
    parser.add_argument("--tuning-steps", type=int, default=300, help="of fine-tuning")
    parser.add_argument("--keep", type=Path, help="directory for tables and models")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        write_tables(options.data, folder, options.rows)
        models = train_models(options, folder)
        label_rows = []
        order_rows = []
        for name, model in models.items():
            label_rows += measure_labels(name, model, folder, options.seeds)
            order_rows.append(measure_orders(name, model, folder, options.order_seeds))
    header = ["model", "labels", "accuracy", "95 % interval", "range", "minus true labels"]
    print(table(header, label_rows))
    print()
    print(table(["model", "accuracy", "range", "deviation", "worst and best order"], order_rows))
    print(f"\n{machine(options.threads)}; {versions('torch')}")


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


def train_models(options: argparse.Namespace, folder: Path) -> Mapping[str, Path]:
    """Train both models, unless they are in the folder."""
    pretrained = folder / "gpt"
    tuned = folder / "tuned"
    if not (pretrained / "model").is_dir():
        settings = ["--max-seq-len", 256, "--set", "config.max_positions=256", "--batch-size", 16]
        if options.steps:
            settings += ["--max-steps", options.steps]
        zoo("pretrain", "gpt", *settings, "--seed", 0, "-o", pretrained, "-q")
    if not (tuned / "model").is_dir():
        data = ["--task", "causal-lm", "--train", folder / "documents.jsonl"]
        settings = ["--max-seq-len", 256, "--max-steps", options.tuning_steps]
        settings += ["--batch-size", 16, "--learning-rate", 1e-3]
        zoo("finetune", pretrained / "model", *data, *settings, "-o", tuned, "-q")
    return {"pretrained": pretrained / "model", "tuned on prompts": tuned / "model"}


def evaluate(model: Path, folder: Path, *options: object) -> dict[str, Any]:
    """Return the result of an evaluation of prompts."""
    words = ",".join(f"{label}={word}" for label, word in WORDS.items())
    task = ["--task", "prompt", "--eval", folder / "texts.csv", "--template", TEMPLATE]
    task += ["--label-words", words, "--shots", SHOTS, "--shots-from", folder / "pool.csv"]
    task += ["--separator", SEPARATOR, "--calibrate", "--no-record", "--json"]
    result: dict[str, Any] = json.loads(zoo("eval", model, *task, *options))
    return result


def measure_labels(name: str, model: Path, folder: Path, seeds: int) -> list[list[str]]:
    """Return a row for each way to label examples."""
    conditions = ["--seeds", seeds, "--wrong-labels", 1]
    for labels in LABELS:
        conditions += ["--shot-labels", labels]
    rows = []
    for row in evaluate(model, folder, *conditions)["conditions"]:
        rows.append(
            [
                name,
                {"gold": "true", "1 wrong": "all wrong"}.get(
                    row["shot labels"], row["shot labels"]
                ),
                f"{row['accuracy']:.3f}",
                f"{row['low']:.3f} to {row['high']:.3f}",
                f"{row['lowest']:.3f} to {row['highest']:.3f}",
                f"{row['difference']:+.3f} ({row['difference_low']:+.3f} to "
                f"{row['difference_high']:+.3f})",
            ]
        )
    return rows


def measure_orders(name: str, model: Path, folder: Path, seeds: int) -> list[str]:
    """Return a row on all orders of some selections."""
    result = evaluate(model, folder, "--seeds", seeds, "--orders", "all")
    order = result["variation"]["order"]
    metrics = result["metrics"]
    low, high = order["deviation_low"], order["deviation_high"]
    return [
        name,
        f"{metrics['accuracy']:.3f}",
        f"{metrics['lowest']:.3f} to {metrics['highest']:.3f}",
        f"{order['deviation']:.3f} ({low:.3f} to {high:.3f})",
        f"{order['lowest']:.3f} to {order['highest']:.3f}",
    ]


if __name__ == "__main__":
    main()
