"""Dai and Le's comparison in small: an LSTM classifier from scratch, and from two pretrainings.

    python -m benchmarks.pretrained_lstm CORPUS DIR [--seeds 3] [--steps 300] [--rows 1000]

CORPUS is a folder of texts without labels. DIR has SST-2 as ``train.tsv`` and ``dev.tsv``, each
with the columns text and label and no header. For each seed, an LSTM of size ``tiny`` is pretrained
as a language model, another one as a sequence autoencoder, on as many rows of the same length, and
both and one with random weights are fine-tuned on the first rows of the shuffled training data.
Prints the accuracy and the loss of the best evaluations, as mean and range over the seeds.
``--quick`` has two steps of pretraining and 64 rows.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._common import machine, table, versions
from benchmarks.from_scratch import write_rows
from zoo.training.logging.run_history import RunHistory

OBJECTIVES = {"language model": "causal-lm", "sequence autoencoder": "sequence-autoencoder"}
QUICK = {"rows": 64, "seeds": 1, "steps": 2, "epochs": 1.0}
BATCH_SIZE = 32
EVALUATIONS = 5
FROM_SCRATCH = "none"
GLOBAL_BATCH_TOKENS = 1024  # Short runs learn more from many small steps.
METRICS = ("accuracy", "loss")
VOCABULARY = 2000
SEQ_LEN = 64
FINE_TUNING: dict[str, Any] = {
    "task": "text-classification",
    "text": "1",
    "label": "2",
    "preset": "tiny",
    "max_seq_len": SEQ_LEN,
    "batch_size": BATCH_SIZE,
    "device": "cpu",
}


def main() -> None:
    """Pretrain, fine-tune, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        vars(options).update(QUICK)
    with tempfile.TemporaryDirectory() as scratch:
        compare(options, Path(scratch))


def compare(options: argparse.Namespace, scratch: Path) -> None:
    """Run the comparison in a directory, and print it."""
    begin = time.process_time()
    train = scratch / "train.tsv"
    write_rows(options.folder / "train.tsv", options.rows, train)
    scores = [train_seed(options, seed, train, scratch) for seed in range(options.seeds)]
    print(table(["pretraining", *METRICS], rows_of(scores)))
    print(f"{options.rows:,} rows, {options.seeds} seeds, {options.steps} steps of pretraining")
    seconds = time.process_time() - begin
    print(f"{seconds:.0f} s of CPU time; {machine(options.threads)}; {versions('torch')}")


def train_seed(
    options: argparse.Namespace, seed: int, train: Path, scratch: Path
) -> dict[str, dict[str, float]]:
    """Train all models of a seed, and return the best evaluation of each."""
    scores = {}
    for name, objective in OBJECTIVES.items():
        model = pretrain(options, objective, seed, scratch / f"{objective}-{seed}")
        # Both are the same model where its weights are random.
        also_from_scratch = objective == "causal-lm"
        run = scratch / f"{objective}-{seed}-sst2"
        results = fine_tune(options, model, train, seed, run, also_from_scratch)
        scores[name] = results[0]
        if also_from_scratch:
            scores[FROM_SCRATCH] = results[1]
    return scores


def rows_of(scores: list[dict[str, dict[str, float]]]) -> list[list[str]]:
    """Return the rows of the table: a way to begin, and its mean and range of each metric."""
    rows = []
    for name in (FROM_SCRATCH, *OBJECTIVES):
        cells = [name]
        for metric in METRICS:
            values = [score[name][metric] for score in scores]
            cells.append(f"{statistics.fmean(values):.3f} ({min(values):.3f} to {max(values):.3f})")
        rows.append(cells)
    return rows


def pretrain(options: argparse.Namespace, objective: str, seed: int, run: Path) -> Path:
    """Pretrain a model, and return its directory."""
    import zoo

    zoo.pretrain(
        "lstm",
        objective=objective,
        train=options.corpus,
        max_steps=options.steps,
        max_seq_len=SEQ_LEN,
        global_batch_tokens=GLOBAL_BATCH_TOKENS,
        seed=seed,
        settings={
            "vocab_size": VOCABULARY,
            "lr_scheduler": {"warmup_steps": options.steps // 10},
            "eval_sequences": 64,
        },
        threads=options.threads,
        device="cpu",
        output=run,
    )
    return run / "model"


def fine_tune(
    options: argparse.Namespace,
    model: Path,
    train: Path,
    seed: int,
    run: Path,
    also_from_scratch: bool,
) -> list[dict[str, float]]:
    """Fine-tune a model, and the same with random weights, and return the best evaluation of each.

    Best is the evaluation with the highest accuracy.
    """
    import zoo

    steps = round(options.epochs * options.rows / BATCH_SIZE)
    training = zoo.finetune(
        model,
        train=train,
        eval=options.folder / "dev.tsv",
        epochs=options.epochs,
        settings={"eval_steps": max(1, steps // EVALUATIONS)},
        seed=seed,
        from_scratch=also_from_scratch,
        threads=options.threads,
        output=run,
        **FINE_TUNING,
    )
    names = ["pretrained", "from-scratch"] if also_from_scratch else ["."]
    results = []
    for name in names:
        evaluations = RunHistory.read(training.run / name).validation
        best = max(evaluations, key=lambda evaluation: evaluation["metrics"]["accuracy"])
        results.append({"accuracy": best["metrics"]["accuracy"], "loss": best["loss"]})
    return results


if __name__ == "__main__":
    main()
