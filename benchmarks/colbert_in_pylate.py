"""ColBERT models of PyLate in zoo, and of zoo in PyLate: embeddings, scores and losses.

PyLate makes a model from an encoder, with a new projection. zoo converts and trains it, and PyLate
opens what comes back. PyLate has an environment of its own, because it needs other versions of
sentence-transformers and transformers:

    python -m venv PY && PY/bin/pip install torch pylate
    python -m benchmarks.colbert_in_pylate ENCODER --data DIR --python PY/bin/python

``ENCODER`` is a directory of the Hub, and ``DIR`` has ``SICK_trial.txt``. Losses and the gradients
of words are in float64, and of documents of one length: in losses, PyLate's padding has a product
of 0 with every token, which is the largest one where all others are negative. The exit code is 1 if
a number differs by more than 1e-4.
"""

import argparse
import csv
import json
import os
import string
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

import zoo
from tests.finetuning.making import setup_of
from tests.tasks.sentence_embedding.making import trained_module, wide

SIDE = Path(__file__).with_name("_pylate_side.py")
TOLERANCE = 1e-4
TASK = "late-interaction"
LOSSES = {"contrastive": "multiple-negatives", "distillation": "kl-div"}
SETTINGS = {
    "defaults": {"embedding_size": 128},
    "no expansion": {"embedding_size": 128, "do_query_expansion": False, "query_length": 24},
    "attended": {"embedding_size": 96, "attend_to_expansion_tokens": True, "document_length": 64},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    with open(options.data / "SICK_trial.txt", encoding="utf-8", newline="") as file:
        pairs = [(r["sentence_A"], r["sentence_B"]) for r in csv.DictReader(file, delimiter="\t")]
    differences: dict[str, float] = {}
    for name, settings in SETTINGS.items():
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ZOO_HOME"] = f"{folder}/home"
            found = compare(Path(folder), options.encoder, settings, pairs, options.python)
        differences |= {f"{name}, {key}": value for key, value in found.items()}
    print(json.dumps(differences, indent=1))
    sys.exit(int(not all(value <= TOLERANCE for value in differences.values())))


def compare(
    folder: Path, encoder: Path, settings: dict[str, Any], pairs: list[tuple[str, str]], python: str
) -> dict[str, float]:
    """Return the largest differences of one model, as PyLate makes it and after training."""
    queries, documents = ([pair[k] for pair in pairs[:16]] for k in (0, 1))
    texts = {"queries": queries, "documents": documents}
    equal = of_one_length([b for _, b in pairs], encoder)
    rows = [
        {"query": query, "positive": a, "negative": b, "scores": [2.0 + k / 8, 1.5]}
        for k, (query, a, b) in enumerate(zip(queries[:8], equal[:8], equal[8:], strict=False))
    ]
    made = folder / "made"
    native = folder / "native"
    back = folder / "back"
    request = {"model": str(encoder), "settings": settings, "save": str(made), **texts}
    request["rows"] = {name: [row[name] for row in rows] for name in rows[0]}
    theirs = pylate(request, folder / "made.npz", python)
    run_zoo("convert", made, "-o", native)
    found = {f"read by zoo, {k}": v for k, v in embedded(native, texts, theirs).items()}
    table = folder / "rows.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    for name, loss in LOSSES.items():
        run = folder / name
        run_zoo(
            "finetune",
            native,
            "--task",
            TASK,
            "--train",
            table,
            "--eval",
            table,
            "-o",
            run,
            "--text",
            "query",
            "--pair",
            "positive",
            "--negative",
            "negative",
            "--max-steps",
            4,
            *(("--label", "scores") if loss == "kl-div" else ()),
            "--set",
            f"task_args.loss={loss}",
            "--set",
            "batch_size=8",
        )
        for key, values in zip((name, f"{name}, gradient"), loss_of(run), strict=True):
            scale = max(1.0, float(np.abs(theirs[key]).max()))
            found[f"loss, {key}"] = float(np.abs(values - theirs[key]).max()) / scale
    run_zoo("convert", run / "model", "--to", "hub", "-o", back)
    again: dict[str, Any] = {"model": str(back), "settings": {}, "save": "", "rows": None, **texts}
    trained = pylate(again, folder / "back.npz", python)
    found |= {f"read by PyLate, {k}": v for k, v in embedded(run / "model", texts, trained).items()}
    return found


def of_one_length(texts: list[str], encoder: Path) -> list[str]:
    """Return different texts with the most common number of tokens, without punctuation."""
    tokenizer = Tokenizer.from_file(str(encoder / "tokenizer.json"))
    tokenizer.no_padding()
    plain = [t for t in dict.fromkeys(texts) if not set(t) & set(string.punctuation)]
    lengths = [len(encoded.ids) for encoded in tokenizer.encode_batch(plain)]
    usual = max(lengths, key=lengths.count)
    return [text for text, length in zip(plain, lengths, strict=True) if length == usual]


def pylate(request: dict[str, Any], output: Path, python: str) -> dict[str, Any]:
    """Return the embeddings, scores and losses of PyLate."""
    text = json.dumps({**request, "output": str(output)})
    subprocess.run([python, SIDE], input=text, text=True, check=True, stdout=subprocess.DEVNULL)
    with np.load(output) as arrays:
        return dict(arrays)


def run_zoo(*words: object) -> None:
    """Run a command of zoo, and raise an error if it fails."""
    command = [sys.executable, "-m", "zoo", *map(str, words), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def embedded(path: Path, texts: dict[str, list[str]], theirs: dict[str, Any]) -> dict[str, float]:
    """Return the largest differences of the embeddings of tokens, and of scores."""
    model = zoo.load(path, backend="cpu")
    vectors = {
        "queries": model.encode_query(texts["queries"]),
        "documents": model.encode_document(texts["documents"]),
    }
    differences = {
        name: max(float(np.abs(one - theirs[f"{name}-{k}"]).max()) for k, one in enumerate(arrays))
        for name, arrays in vectors.items()
    }
    scores = np.zeros(theirs["scores"].shape)
    for number, query in enumerate(texts["queries"]):
        for row in model.rerank(query, texts["documents"]):
            scores[number, row["corpus_id"]] = row["score"]
    return {**differences, "MaxSim": float(np.abs(scores - theirs["scores"]).max())}


def loss_of(run: Path) -> tuple[Any, Any]:
    """Return the loss of the rows of a run before training, and the gradient of the words."""
    setup: Any = setup_of(run)
    module = trained_module(setup).eval()
    rows = setup.eval_rows
    batch = setup.objective.collate([rows.example(k, None) for k in range(len(rows))])
    loss = setup.objective.compute_loss(module, wide(batch.tensors)).sums[TASK] / len(rows)
    named = dict(module.named_parameters())
    (words,) = [named[name] for name in named if name.endswith("embeddings.tokens.weight")]
    (gradient,) = torch.autograd.grad(loss, words)
    return loss.detach().numpy(), gradient.numpy()


if __name__ == "__main__":
    main()
