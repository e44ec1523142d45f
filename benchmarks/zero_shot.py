"""Labels in words: a sentence encoder fine-tuned on SICK's entailment classifies other texts.

    python -m benchmarks.zero_shot MODEL DATA [--epochs 1] [--rows 100] [--keep DIR]

MODEL is a sentence encoder. DATA has the folders ``sick``, ``ud_ewt``, ``sst2`` and ``corpus``. The
commands are a reader's: ``zoo finetune`` on SICK, then ``zoo eval --task zero-shot``.

No label of the three tables is in the training data: the kinds of the documents of the English Web
Treebank (their first sentences), the subjects of five novels (a paragraph counts as its novel's
subject, which it need not mention) and the sentiment of SST-2. As many texts of each
label, at most ``--rows``, are drawn at random, so that guessing has an accuracy of one divided by
the number of labels.

Prints a row per table: the accuracy with the bootstrap interval of 95 % over the texts, as the mean
and the range over the templates, and the accuracy of the same encoder without any training, which
takes the label whose words have the most similar embedding.
"""

import argparse
import csv
import json
import os
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks._common import machine, table, versions, zoo

TEMPLATES = ("This example is {}.", "This text is about {}.")
KINDS = {
    "answers": "a question and its answer",
    "email": "an e-mail at work",
    "newsgroup": "a message to a discussion group",
    "reviews": "a review of a business",
    "weblog": "politics in the news",
}
NOVELS = {
    "dracula": "a vampire",
    "moby_dick": "hunting whales",
    "pride_and_prejudice": "love and marriage",
    "sherlock_holmes": "a detective",
    "war_and_peace": "war and soldiers",
}
SENTIMENTS = {"0": "negative", "1": "positive"}
WORDS = {"kinds": KINDS, "novels": NOVELS, "sst2": SENTIMENTS}
Rows = list[tuple[str, str]]  # text and label


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=float, default=1, help="passes over SICK")
    parser.add_argument("--rows", type=int, default=100, help="texts of each label, at most")
    parser.add_argument("--keep", type=Path, help="directory for tables and the fine-tuned model")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        model, entailment = fine_tune(options, folder)
        rows = [
            measure(name, balanced(found, options.rows), model, options, folder)
            for name, found in read_tables(options.data).items()
        ]
    header = ["texts", "number", "chance", "accuracy", "95 % interval", "templates", "untrained"]
    print(table(header, rows))
    print(f"\nentailment of SICK's trial data: accuracy {entailment:.3f}")
    print(f"{machine(options.threads)}; {versions('torch')}")


def fine_tune(options: argparse.Namespace, folder: Path) -> tuple[Path, float]:
    """Fine-tune on SICK's entailment; return the model and its accuracy on the trial data."""
    sick = options.data / "sick"
    run = folder / "nli"
    task = ["--task", "text-classification", "--text", "sentence_A", "--pair", "sentence_B"]
    task += ["--label", "entailment_judgment", "--eval", sick / "SICK_trial.txt"]
    if not (run / "model").is_dir():
        train = ["--train", sick / "SICK_train.txt", "--epochs", options.epochs, "-o", run]
        zoo("finetune", options.model, *task, *train)
    metrics = json.loads(zoo("eval", run / "model", *task, "--json"))["metrics"]
    return run / "model", metrics["accuracy"]


def measure(
    name: str, rows: Rows, model: Path, options: argparse.Namespace, folder: Path
) -> list[str]:
    """Return the cells of a table of texts."""
    words = WORDS[name]
    file = folder / f"{name}.csv"
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened).writerows([("text", "label"), *rows])
    given = ["--label-words", ",".join(f"{label}={word}" for label, word in words.items())]
    for template in TEMPLATES:
        given += ["--template", template]
    record = json.loads(zoo("eval", model, "--task", "zero-shot", "--eval", file, *given, "--json"))
    found = record["metrics"]
    low, high = record["intervals"]["accuracy"]
    return [
        f"{name}, {len(words)} labels",
        str(len(rows)),
        f"{1 / len(words):.2f}",
        f"{found['accuracy']:.3f}",
        f"{low:.3f} to {high:.3f}",
        f"{found['lowest']:.3f} to {found['highest']:.3f}",
        f"{similarity_accuracy(options.model, rows, words):.3f}",
    ]


def similarity_accuracy(model: Path, rows: Rows, words: Mapping[str, str]) -> float:
    """Return how often a text's embedding is most similar to that of its label's words."""
    import numpy as np

    from zoo import load

    loaded = load(model, backend="cpu", threads=1)
    texts, labels = (
        np.array(loaded.embed(list(t))) for t in ([r[0] for r in rows], words.values())
    )
    best = (texts @ labels.T).argmax(1)
    names = list(words)
    return float(np.mean([names[k] == label for k, (_, label) in zip(best, rows, strict=True)]))


def read_tables(data: Path) -> dict[str, Rows]:
    return {
        "kinds": [
            row for file in sorted((data / "ud_ewt").glob("*.conllu")) for row in kinds(file)
        ],
        "novels": [
            (paragraph, name)
            for name in NOVELS
            for paragraph in paragraphs(data / "corpus" / "train" / f"{name}.txt")
        ],
        "sst2": [
            (text, label)
            for line in (data / "sst2" / "dev.tsv").read_text("utf-8").splitlines()
            for text, label in [line.split("\t")[:2]]
        ],
    }


def kinds(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the first two sentences of each document of a treebank, and its kind."""
    for document in file.read_text("utf-8").split("# newdoc id = ")[1:]:
        kind = document.partition("-")[0]
        marker = "# text = "
        texts = [t.removeprefix(marker) for t in document.splitlines() if t.startswith(marker)]
        yield " ".join(texts[:2]), kind


def paragraphs(file: Path) -> Iterator[str]:
    """Yield the paragraphs of a novel that have from 20 to 60 words."""
    for paragraph in file.read_text("utf-8").split("\n\n"):
        if 20 <= len(words := paragraph.split()) <= 60:
            yield " ".join(words)


def balanced(rows: Rows, count: int) -> Rows:
    """Return as many rows of each label, at most ``count``, drawn at random."""
    rows = sorted(rows)
    random.Random(0).shuffle(rows)
    by_label: dict[str, Rows] = {}
    for row in rows:
        by_label.setdefault(row[1], []).append(row)
    each = min(count, *map(len, by_label.values()))
    return [row for label in sorted(by_label) for row in by_label[label][:each]]


if __name__ == "__main__":
    main()
