"""Scores of models of zoo and of the Hub in lm-evaluation-harness, MTEB, sentence-transformers.

A small causal model and a sentence encoder are trained, and converted to the Hub's layout. The
harness scores minimal pairs and the perplexity of texts by its own backend of transformers and by
``zoo.contrib.lm_eval``; sentence-transformers embeds texts with the converted encoder, and its
evaluators of retrieval, reranking, pairs and similarity are compared with ``zoo eval``, as are
MTEB's tasks of these kinds, and the hard negatives that it mines; MTEB scores pairs with both.
Where texts are tied, ``zoo eval`` has the mean of what the others compute over the orders of these
texts. Nothing is downloaded. The programs have an environment of their own:

    python -m venv PY && PY/bin/pip install torch && PY/bin/pip install -e .
    PY/bin/pip install lm-eval mteb sentence-transformers datasets accelerate
    PY/bin/python -m benchmarks.evaluators DATA -o tests/results/evaluators.json

``DATA`` has ``minimal_pairs/blimp.tsv`` (paradigm, good, bad), ``sick/SICK_train.txt`` and
``sick/SICK_trial.txt``. ``--only embeddings`` leaves out the harness, and ``--only harness`` the
encoder. The exit code is 1 if a number differs by more than 1e-4.
"""

import argparse
import csv
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from benchmarks._ranking_evaluators import compare_evaluators, write_rows
from tests.contrib.sts import mteb_scores
from zoo.contrib.lm_eval import harness_model
from zoo.contrib.mteb import Encoder

TOLERANCE = 1e-4
# number of minimal pairs and of texts
PAIRS = 200
DOCUMENTS = 50
PACKAGES = ("lm_eval", "mteb", "sentence-transformers", "transformers", "torch")
SICK: dict[str, Any] = {"text": "sentence_A", "pair": "sentence_B", "label": "relatedness_score"}
PROBABILITY = "log-probabilities of minimal pairs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--only", choices=PARTS, help="one part of the comparison")
    options = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ZOO_HOME"] = f"{folder}/home"
        chosen = [options.only] if options.only else list(PARTS)
        differences: dict[str, float] = {}
        for name in chosen:
            differences |= PARTS[name](Path(folder), options.data)
    unused = () if "harness" in chosen else ("lm_eval",)
    versions = {n: importlib.metadata.version(n) for n in PACKAGES if n not in unused}
    result = {"differences": differences, "versions": versions, "tolerance": TOLERANCE}
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if options.output is not None:
        options.output.write_text(text, "utf-8")
    sys.exit(int(not all(value <= TOLERANCE for value in differences.values())))


def run_zoo(*words: object) -> None:
    """Run a command of zoo, and raise an error if it fails."""
    command = [sys.executable, "-m", "zoo", *map(str, words), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def compare_in_harness(folder: Path, data: Path) -> dict[str, float]:
    """Return the largest differences of a causal model in the harness."""
    from lm_eval.models.huggingface import HFLM

    run_zoo("pretrain", "gpt", "--size", "tiny", "--max-steps", "30", "-o", folder / "gpt")
    run_zoo("convert", folder / "gpt" / "model", "--to", "hub", "-o", folder / "gpt-hub")
    reader = csv.DictReader(
        (data / "minimal_pairs" / "blimp.tsv").open(encoding="utf-8"), delimiter="\t"
    )
    rows = [row for _, row in zip(range(PAIRS), reader, strict=False)]
    texts = [{"text": f"{row['good']} {row['bad']}"} for row in rows[:DOCUMENTS]]
    write_task(folder, "pairs", rows, PAIR_TASK)
    write_task(folder, "texts", texts, TEXT_TASK)
    peer = run_harness(HFLM(str(folder / "gpt-hub"), device="cpu", dtype="float32"), folder)
    mine = run_harness(harness_model(str(folder / "gpt" / "model"), backend="cpu"), folder)
    perplexity = "perplexity of a byte and of a word, relative"
    return {
        f"harness, {PROBABILITY}": largest(log_probabilities(mine), log_probabilities(peer)),
        "harness, accuracy": abs(metric(mine, "pairs", "acc") - metric(peer, "pairs", "acc")),
        f"harness, {perplexity}": max(
            abs(metric(mine, "texts", name) / metric(peer, "texts", name) - 1)
            for name in ("byte_perplexity", "word_perplexity")
        ),
    }


PAIR_TASK: Mapping[str, Any] = {
    "output_type": "multiple_choice",
    "doc_to_text": "",
    "doc_to_choice": "{{[good, bad]}}",
    "doc_to_target": 0,
    "target_delimiter": "",
    "metric_list": [{"metric": "acc"}],
}
TEXT_TASK: Mapping[str, Any] = {
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "{{text}}",
    "metric_list": [{"metric": "byte_perplexity"}, {"metric": "word_perplexity"}],
}


def write_task(
    folder: Path, name: str, rows: Sequence[Mapping[str, Any]], task: Mapping[str, Any]
) -> None:
    """Write a local task of the harness, and its data; JSON is YAML."""
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    source = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"validation": str(data)}},
        "validation_split": "validation",
    }
    (folder / f"{name}.yaml").write_text(json.dumps({**source, **task}), "utf-8")


def run_harness(model: Any, folder: Path) -> Any:
    """Return the results of both tasks."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    return lm_eval.simple_evaluate(
        model=model,
        tasks=["pairs", "texts"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
        log_samples=True,
    )


def metric(result: Any, task: str, name: str) -> float:
    """Return a metric of the harness."""
    return float(result["results"][task][f"{name},none"])


def log_probabilities(result: Any) -> list[float]:
    """Return the log-probability of each sentence of the minimal pairs."""
    samples = sorted(result["samples"]["pairs"], key=lambda sample: sample["doc_id"])
    return [float(answer[0]) for sample in samples for answer in sample["filtered_resps"]]


def compare_embeddings(folder: Path, data: Path) -> dict[str, float]:
    """Return the largest differences of a sentence encoder in sentence-transformers and MTEB."""
    from sentence_transformers import SentenceTransformer

    held = folder / "trial.tsv"
    held.write_bytes((data / "sick" / "SICK_trial.txt").read_bytes())
    train = folder / "train.tsv"
    train.write_bytes((data / "sick" / "SICK_train.txt").read_bytes())
    columns = [word for name, column in SICK.items() for word in (f"--{name}", column)]
    run_zoo("pretrain", "bert", "--size", "tiny", "--max-steps", "30", "-o", folder / "bert")
    settings = ["--set", "max_steps=20", "--set", "data.eval_fraction=0.02"]
    run_zoo(
        "finetune",
        folder / "bert" / "model",
        "--task",
        "sentence-embedding",
        "--train",
        train,
        *columns,
        *settings,
        "-o",
        folder / "encoder",
    )
    model = folder / "encoder" / "model"
    run_zoo("convert", model, "--to", "hub", "-o", folder / "encoder-hub")
    peer = SentenceTransformer(str(folder / "encoder-hub"), device="cpu")
    loaded = zoo.load(model, backend="cpu")
    with held.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    texts = [row[SICK[name]] for row in rows for name in ("text", "pair")]
    mine = score_pairs(Encoder(loaded), rows)
    others = score_pairs(peer, rows)
    command = zoo.evaluate(loaded, task="sentence-embedding", eval=held, **SICK).metrics
    names = ("spearman", "pearson")
    return {
        **compare_evaluators(folder, rows, model, peer),
        **compare_negatives(folder, rows, model, peer),
        "sentence-transformers, embeddings": largest(loaded.embed(texts), peer.encode(texts)),
        "MTEB, correlations": max(abs(mine[name] - others[name]) for name in names),
        "MTEB and zoo eval, correlations": max(abs(mine[n] - command[n]) for n in names),
    }


def compare_negatives(
    folder: Path, rows: Sequence[Mapping[str, str]], model: Path, peer: Any
) -> dict[str, float]:
    """Return the largest difference of the scores in what ``zoo mine-negatives`` writes.

    Texts whose scores only differ by rounding may take each other's place.
    """
    from datasets import Dataset
    from sentence_transformers import util

    pairs = [{"text": row[SICK["text"]], "pair": row[SICK["pair"]]} for row in rows]
    write_rows(folder / "mining.jsonl", pairs)
    output = folder / "mined.jsonl"
    worst = 0.0
    for form in ("triplet", "n-tuple", "labeled-pair", "labeled-list"):
        options: dict[str, Any] = {"num_negatives": 2, "relative_margin": 0.001, "range_min": 1}
        mine_hard_negatives: Any = util.mine_hard_negatives
        theirs = mine_hard_negatives(
            Dataset.from_list(pairs),
            peer,
            output_format=form,
            output_scores=True,
            verbose=False,
            **options,
        ).to_list()
        words = [w for k, v in options.items() for w in (f"--{k.replace('_', '-')}", v)]
        run_zoo(
            "mine-negatives",
            model,
            "--input",
            folder / "mining.jsonl",
            "-o",
            output,
            "--output-format",
            form,
            "--output-scores",
            "--force",
            "--backend",
            "cpu",
            *words,
        )
        mine = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
        sides = [text_scores(mine), text_scores(theirs)]
        same = [text for text, _ in sides[0]] == [text for text, _ in sides[1]]
        found = [largest(a, b) for (_, a), (_, b) in zip(*sides, strict=same)]
        worst = max(worst, *found) if same else float("inf")
    return {"sentence-transformers, scores of hard negatives": worst}


def text_scores(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[float]]]:
    """Return the query and the scores of each row, in an order that scores decide."""
    found = []
    for row in rows:
        values = [
            v for value in row.values() for v in (value if isinstance(value, list) else [value])
        ]
        found.append((str(row["text"]), [v for v in values if isinstance(v, float)]))
    return sorted(found)


def score_pairs(encoder: Any, rows: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """Return the correlations that MTEB computes from an encoder's similarities."""
    columns: dict[str, list[Any]] = {
        "sentence1": [row[SICK["text"]] for row in rows],
        "sentence2": [row[SICK["pair"]] for row in rows],
        "score": [float(row[SICK["label"]]) for row in rows],
    }
    scores = mteb_scores(encoder, columns, (1, 5))
    return {name: float(scores[f"cosine_{name}"]) for name in ("spearman", "pearson")}


def largest(first: Any, second: Any) -> float:
    """Return the largest absolute difference of two arrays."""
    return float(np.abs(np.asarray(first) - np.asarray(second)).max())


PARTS: Mapping[str, Any] = {"harness": compare_in_harness, "embeddings": compare_embeddings}

if __name__ == "__main__":
    main()
