"""Scores of models of zoo and of the Hub in lm-evaluation-harness, MTEB, sentence-transformers.

A small causal model and a sentence encoder are trained, and converted to the Hub's layout. The
harness scores minimal pairs and the perplexity of texts by its own backend of transformers and by
``zoo.contrib.lm_eval``; sentence-transformers embeds texts with the converted encoder, and its
evaluators of retrieval, reranking, pairs and similarity are compared with ``zoo eval``, as are the
hard negatives that it mines; MTEB scores pairs with both. Nothing is downloaded. The programs have
an environment of their own:

    python -m venv PY && PY/bin/pip install torch && PY/bin/pip install -e .
    PY/bin/pip install lm-eval mteb sentence-transformers datasets accelerate
    PY/bin/python -m benchmarks.evaluators DATA -o tests/results/evaluators.json

``DATA`` has ``minimal_pairs/blimp.tsv`` (paradigm, good, bad), ``sick/SICK_train.txt`` and
``sick/SICK_trial.txt``. The exit code is 1 if a number differs by more than 1e-4.
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
from tests.contrib.sts import mteb_scores
from zoo.contrib.lm_eval import harness_model
from zoo.contrib.mteb import Encoder

TOLERANCE = 1e-4
PAIRS, DOCUMENTS = 200, 50  # number of minimal pairs and of texts
PACKAGES = ("lm_eval", "mteb", "sentence-transformers", "transformers", "torch")
SICK: dict[str, Any] = {"text": "sentence_A", "pair": "sentence_B", "label": "relatedness_score"}
PROBABILITY = "log-probabilities of minimal pairs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ZOO_HOME"] = f"{folder}/home"
        differences = {
            **compare_in_harness(Path(folder), options.data),
            **compare_embeddings(Path(folder), options.data),
        }
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
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
        *("finetune", folder / "bert" / "model", "--task", "sentence-embedding"),
        *("--train", train, *columns, *settings, "-o", folder / "encoder"),
    )
    model = folder / "encoder" / "model"
    run_zoo("convert", model, "--to", "hub", "-o", folder / "encoder-hub")
    peer = SentenceTransformer(str(folder / "encoder-hub"), device="cpu")
    loaded = zoo.load(model, backend="cpu")
    with held.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    texts = [row[SICK[name]] for row in rows for name in ("text", "pair")]
    mine, others = score_pairs(Encoder(loaded), rows), score_pairs(peer, rows)
    command = zoo.evaluate(loaded, task="sentence-embedding", eval=held, **SICK).metrics
    names = ("spearman", "pearson")
    return {
        **compare_evaluators(folder, rows, model, peer),
        **compare_negatives(folder, rows, model, peer),
        "sentence-transformers, embeddings": largest(loaded.embed(texts), peer.encode(texts)),
        "MTEB, correlations": max(abs(mine[name] - others[name]) for name in names),
        "MTEB and zoo eval, correlations": max(abs(mine[n] - command[n]) for n in names),
    }


def compare_evaluators(
    folder: Path, rows: Sequence[Mapping[str, str]], model: Path, peer: Any
) -> dict[str, float]:
    """Return the largest differences from the evaluators of sentence-transformers.

    Texts that entail each other are relevant; a corpus has each text once.
    """
    import sentence_transformers.sentence_transformer.evaluation as library

    evaluation: Any = library

    first, second = ([row[SICK[name]] for row in rows] for name in ("text", "pair"))
    labels = [int(row["entailment_judgment"] == "ENTAILMENT") for row in rows]
    scores = [float(row[SICK["label"]]) for row in rows]
    queries = {text: f"q{k}" for k, text in enumerate(dict.fromkeys(first))}
    corpus = {text: f"d{k}" for k, text in enumerate(dict.fromkeys(second))}
    relevant: dict[str, set[str]] = {}
    for a, b, label in zip(first, second, labels, strict=True):
        if label:
            relevant.setdefault(queries[a], set()).add(corpus[b])
    samples = [
        {"query": a, "positive": [b], "negative": [t for t in (*second[:9],) if t != b]}
        for a, b, label in zip(first, second, labels, strict=True)
        if label
    ]
    by_id = [{number: text for text, number in side.items()} for side in (queries, corpus)]
    theirs: dict[str, float] = {}
    for evaluator in (
        evaluation.InformationRetrievalEvaluator(*by_id, relevant, write_csv=False),
        evaluation.RerankingEvaluator(samples, at_k=10, write_csv=False),
        evaluation.BinaryClassificationEvaluator(
            first, second, labels, similarity_fn_names=["cosine"], write_csv=False
        ),
        evaluation.EmbeddingSimilarityEvaluator(
            first, second, scores, main_similarity="cosine", write_csv=False
        ),
    ):
        theirs |= {f"{type(evaluator).__name__} {k}": v for k, v in evaluator(peer).items()}
    write_rows(folder / "corpus.jsonl", [{"_id": k, "text": t} for t, k in corpus.items()])
    write_rows(folder / "queries.jsonl", [{"_id": k, "text": t} for t, k in queries.items()])
    lines = [f"{query} 0 {text} 1" for query, texts in relevant.items() for text in texts]
    (folder / "qrels.txt").write_text("\n".join(lines) + "\n", "utf-8")
    write_rows(folder / "samples.jsonl", samples)
    pairs = [
        {"text": a, "pair": b, "label": n} for a, b, n in zip(first, second, labels, strict=True)
    ]
    write_rows(folder / "pairs.jsonl", pairs)
    scored = [{**row, "label": n} for row, n in zip(pairs, scores, strict=True)]
    write_rows(folder / "scored.jsonl", scored)

    def ours(task: str, data: str, **options: Any) -> Mapping[str, float]:
        found = zoo.evaluate(model, task=task, eval=folder / data, backend="cpu", **options)
        return found.metrics

    files = {
        name: str(folder / f"{name}.{end}")
        for name, end in (("queries", "jsonl"), ("qrels", "txt"))
    }
    retrieval = ours("retrieval", "corpus.jsonl", **files)
    reranking = ours(
        "reranker", "samples.jsonl", text="query", pair="positive", negative=("negative",)
    )
    binary = ours("pair-classification", "pairs.jsonl", pair="pair")
    similar = ours("sentence-embedding", "scored.jsonl", pair="pair", label="label")
    compared = {
        "InformationRetrievalEvaluator": {
            "cosine_ndcg@10": retrieval["ndcg_at_10"],
            "cosine_mrr@10": retrieval["mrr_at_10"],
            "cosine_map@100": retrieval["map_at_100"],
            "cosine_accuracy@1": retrieval["accuracy"],
            **{f"cosine_recall@{k}": retrieval[f"recall_at_{k}"] for k in (1, 5, 10)},
        },
        "RerankingEvaluator": {
            "map": reranking["map"],
            "mrr@10": reranking["mrr_at_10"],
            "ndcg@10": reranking["ndcg_at_10"],
        },
        "BinaryClassificationEvaluator": {
            "cosine_accuracy": binary["accuracy"],
            "cosine_f1": binary["f1"],
            "cosine_ap": binary["average_precision"],
            "cosine_mcc": binary["matthews_correlation"],
        },
        "EmbeddingSimilarityEvaluator": {
            "pearson_cosine": similar["pearson"],
            "spearman_cosine": similar["spearman"],
        },
    }
    return {
        f"sentence-transformers, {name}": max(
            abs(value - theirs[f"{name} {key}"]) for key, value in values.items()
        )
        for name, values in compared.items()
    }


def compare_negatives(
    folder: Path, rows: Sequence[Mapping[str, str]], model: Path, peer: Any
) -> dict[str, float]:
    """Return the share of rows in which ``zoo mine-negatives`` differs."""
    from datasets import Dataset
    from sentence_transformers import util

    pairs = [{"text": row[SICK["text"]], "pair": row[SICK["pair"]]} for row in rows]
    write_rows(folder / "mining.jsonl", pairs)
    output, differing, count = folder / "mined.jsonl", 0, 0
    for form in ("triplet", "n-tuple", "labeled-pair", "labeled-list"):
        options: dict[str, Any] = {"num_negatives": 2, "relative_margin": 0.05, "range_min": 1}
        mine_hard_negatives: Any = util.mine_hard_negatives
        theirs = mine_hard_negatives(
            Dataset.from_list(pairs), peer, output_format=form, verbose=False, **options
        ).to_list()
        words = [w for k, v in options.items() for w in (f"--{k.replace('_', '-')}", v)]
        run_zoo(
            *("mine-negatives", model, "--input", folder / "mining.jsonl", "-o", output),
            *("--output-format", form, "--force", "--backend", "cpu", *words),
        )
        mine = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
        sides = [{json.dumps(row, sort_keys=True) for row in side} for side in (mine, theirs)]
        differing, count = differing + len(sides[0] ^ sides[1]), count + len(sides[1])
    return {"sentence-transformers, hard negatives": differing / count}


def write_rows(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write JSON lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


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


if __name__ == "__main__":
    main()
