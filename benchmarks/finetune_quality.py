"""Quality of fine-tuned models: ``zoo finetune`` beside the ``Trainer`` of transformers.

    python -m benchmarks.finetune_quality MODEL --data DIR [--tasks sst2 mrpc ...] [--seeds 3]
    python -m benchmarks.finetune_quality MODEL --data DIR --tasks sst2 --rows 500 2000 --scratch
    python -m benchmarks.finetune_quality ELMO --data DIR --tasks ud-ewt --layers mix 0

MODEL is a directory in the Hub's layout, or any model of the zoo with ``--no-trainer``. DIR has a
folder for each task; see ``TASKS`` for the files and columns.

Both sides have the same settings: the preset ``default``, which is run_glue.py's (AdamW without
decay, linear decay to 0), batches of 32 samples, and a learning rate and number of epochs by task.
Dropout, order of the samples and the new head are drawn by each side itself. The weights after
the last step are evaluated, those of the Trainer after ``zoo convert``, by the same ``zoo eval``.

``--layers`` compares what a classifier of a frozen model reads instead, with the preset ``paper``
of its family: a learned mix of all layers, or a single one. There is no Trainer then.

``--scratch`` adds a side that begins with random weights of the same shape, and ``--rows`` trains
on the first rows of the shuffled training data. ``--keep DIR`` keeps the runs and repeats none that
it has. Prints a row per task, side and number of rows: the median over the seeds, their range, the
bootstrap interval of 95 % of the median's run, and for ours whether its range overlaps that of the
Trainer or lies above it.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._common import machine, table, versions, zoo

OURS = "zoo"
TRAINER = "Trainer"
SCRATCH = "zoo, random weights"


@dataclass(frozen=True)
class Task:
    """A task and its data.

    Attributes:
        name: name of the task in the zoo.
        train: file to train on.
        eval: file to evaluate on; a part of ``train`` by articles if it is the same.
        metric: the metric that is compared.
        columns: options of the command that name columns.
        learning_rate: the highest learning rate.
        epochs: number of passes over the data.
        max_seq_len: number of tokens that texts are truncated to.
    """

    name: str
    train: str
    eval: str
    metric: str
    columns: Mapping[str, str] = field(default_factory=dict)
    learning_rate: float = 5e-5
    epochs: int = 3
    max_seq_len: int = 128


PAIR = {"text": "sentence_A", "pair": "sentence_B"}
SICK = ("sick/SICK_train.txt", "sick/SICK_trial.txt")
TASKS = {
    "sst2": Task(
        "text-classification",
        "sst2/train.tsv",
        "sst2/dev.tsv",
        "accuracy",
        {"text": "1", "label": "2"},
    ),
    "mrpc": Task(
        "text-classification",
        "mrpc/train.tsv",
        "mrpc/val.tsv",
        "f1",
        {"text": "#1 String", "pair": "#2 String", "label": "Quality"},
    ),
    "sick-relatedness": Task(
        "regression", *SICK, "pearson", {**PAIR, "label": "relatedness_score"}
    ),
    "sick-entailment": Task(
        "text-classification", *SICK, "accuracy", {**PAIR, "label": "entailment_judgment"}
    ),
    "cola": Task(
        "text-classification",
        "cola/train.tsv",
        "cola/dev.tsv",
        "matthews_correlation",
        {"text": "4", "label": "2"},
    ),
    "wnut17": Task(
        "token-classification", "wnut17/train.conll", "wnut17/dev.conll", "f1", epochs=5
    ),
    "ud-ewt": Task(
        "token-classification",
        "ud_ewt/dev.conllu",
        "ud_ewt/test.conllu",
        "accuracy",
        learning_rate=1e-4,
        epochs=5,
    ),
    "xquad": Task(
        "question-answering",
        "xquad/xquad.en.json",
        "xquad/xquad.en.json",
        "f1",
        learning_rate=1e-4,
        epochs=4,
        max_seq_len=384,
    ),
}
SHAPE = (
    "hidden_size",
    "embedding_size",
    "num_layers",
    "num_heads",
    "intermediate_size",
    "max_positions",
)
HELD_OUT_ARTICLES = 10  # the last ones of a file of questions that is both
Values = Mapping[str, Any]
TrainSide = Callable[[Task, Path, Path, int, argparse.Namespace], Path]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder of the tasks' folders")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="+", help="numbers of training rows")
    parser.add_argument("--scratch", action="store_true", help="random weights, too")
    parser.add_argument("--set", nargs="+", default=[], help="KEY=VALUE settings of zoo's runs")
    parser.add_argument("--layers", nargs="+", help="layers that classifiers read: mix, 0, ...")
    parser.add_argument("--no-trainer", action="store_true", help="zoo alone")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--max-steps", type=int, default=0, help="end each run early")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="directory for the runs")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.keep or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        rows = [row for name in options.tasks for row in compare_sides(name, folder, options)]
    header = ["task", "side", "rows", "metric", "median", "range", "95 % interval", "of Trainer"]
    print(table(header, rows))
    print(f"\n{machine(options.threads)}; {versions('torch', 'transformers')}")
    print(f"precision {options.precision}, {options.seeds} seeds")


def compare_sides(name: str, folder: Path, options: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the rows of a task's table."""
    task = TASKS[name]
    sides = make_sides(options)
    for count in options.rows or [0]:
        train, evaluation = files(task, count, folder, options.data)
        scores: dict[str, list[Values]] = {}
        for side, train_side in sides.items():
            scores[side] = []
            for seed in range(options.seeds):
                run = folder / f"{name}-{side.replace(', ', '-').replace(' ', '-')}-{count}-{seed}"
                if not (run / "score.json").exists():
                    shutil.rmtree(run, ignore_errors=True)
                    run.mkdir()
                    model = train_side(task, train, run, seed, options)
                    score = evaluate(task, model, evaluation)
                    (run / "score.json").write_text(json.dumps(score))
                    discard(run)
                scores[side].append(json.loads((run / "score.json").read_text()))
                print(run.name, scores[side][-1], file=sys.stderr, flush=True)
        for side, values in scores.items():
            compared = is_within(values, scores[TRAINER]) if TRAINER in scores else None
            verdict = "" if side != OURS or compared is None else "within" if compared else "below"
            yield [name, side, str(count or "all"), task.metric, *cells(values), verdict]


def make_sides(options: argparse.Namespace) -> dict[str, TrainSide]:
    """Return name -> function that trains a model of each side that the options name."""
    if options.layers:
        return {f"layers={layers}": partial(train_layers, layers) for layers in options.layers}
    sides: dict[str, TrainSide] = {OURS: train_zoo}
    if not options.no_trainer:
        sides[TRAINER] = train_trainer
    if options.scratch:
        sides[SCRATCH] = train_from_random_weights
    return sides


def files(task: Task, count: int, folder: Path, data: Path) -> tuple[Path, Path]:
    """Return the files to train and to evaluate on.

    Args:
        task: the task.
        count: number of rows to train on; 0 for all.
        folder: folder for files that are parts of others.
        data: folder of the data.
    """
    train = data / task.train
    evaluation = data / task.eval
    if train == evaluation:
        articles = json.loads(train.read_text("utf-8"))["data"]
        parts = articles[:-HELD_OUT_ARTICLES], articles[-HELD_OUT_ARTICLES:]
        train, evaluation = (folder / f"{train.stem}-{part}.json" for part in ("train", "eval"))
        for path, part in zip((train, evaluation), parts, strict=True):
            path.write_text(json.dumps({"version": "1.1", "data": part}), encoding="utf-8")
    if count and task.name != "question-answering":  # of which there are few
        words = task.name == "token-classification"  # in sentences with a blank line after each
        pattern, separator = (r"\n\s*\n", "\n\n") if words else (r"\n", "\n")
        rows = re.split(pattern, train.read_text("utf-8-sig").strip())
        is_named = bool(task.columns) and not task.columns["text"].isdecimal()
        header = [rows.pop(0)] if is_named else []
        random.Random(0).shuffle(rows)
        train = folder / f"{train.parent.name}-{count}{train.suffix}"
        train.write_text(separator.join([*header, *rows[:count]]) + separator, encoding="utf-8")
    return train, evaluation


def train_zoo(task: Task, train: Path, run: Path, seed: int, options: argparse.Namespace) -> Path:
    """Fine-tune the pretrained model, and return the directory of the result."""
    return finetune(task, options.model, run_settings(task), train, run, seed, options)


def train_layers(
    layers: str, task: Task, train: Path, run: Path, seed: int, options: argparse.Namespace
) -> Path:
    """Train a classifier of layers of the frozen model, with the preset of its paper."""
    changes = [f"task_args.layers={layers}"]
    return finetune(task, options.model, changes, train, run, seed, options, preset="paper")


def run_settings(task: Task) -> list[str]:
    """Return the settings of a task that replace those of the preset."""
    return [
        f"max_seq_len={task.max_seq_len}",
        f"optimizer.learning_rate={task.learning_rate}",
        f"num_train_epochs={task.epochs}",
    ]


def train_from_random_weights(
    task: Task, train: Path, run: Path, seed: int, options: argparse.Namespace
) -> Path:
    """Train a model of the same family, shape and tokenizer from random weights."""
    from zoo.conversion.cache import resolve_checkpoint

    checkpoint = resolve_checkpoint(str(options.model))
    shape = {name: getattr(checkpoint.config, name, None) for name in SHAPE}
    changes = [f"config.{name}={value}" for name, value in shape.items() if value is not None]
    changes += [f"tokenizer={options.model}", *run_settings(task)]
    return finetune(task, checkpoint.family.name, changes, train, run, seed, options)


def finetune(
    task: Task,
    model: str | Path,
    changes: Sequence[str],
    train: Path,
    run: Path,
    seed: int,
    options: argparse.Namespace,
    preset: str = "default",
) -> Path:
    """Run the command, with one evaluation at the end, and return the directory of the model."""
    settings = [
        f"max_steps={options.max_steps}",
        f"precision={options.precision}",
        "eval_steps=1000000",
        "report_to=[]",
        *changes,
        *options.set,
    ]
    columns = [word for name, column in task.columns.items() for word in (f"--{name}", column)]
    # the held-out tenth is not needed, but a run has an evaluation: on data that it trains on
    data = ["--train", str(train), "--eval", str(train), *columns]
    zoo(
        "finetune",
        str(model),
        "--task",
        task.name,
        *data,
        "--preset",
        preset,
        "--seed",
        str(seed),
        "--offline",
        "-o",
        str(run / "run"),
        *[word for change in settings for word in ("--set", change)],
    )
    return run / "run" / "model"


def train_trainer(
    task: Task, train: Path, run: Path, seed: int, options: argparse.Namespace
) -> Path:
    """Fine-tune with the Trainer in a process of its own, convert, and return the directory."""
    settings = {
        "task": task.name,
        "columns": dict(task.columns),
        "train": str(train),
        "model": str(options.model),
        "learning_rate": task.learning_rate,
        "epochs": task.epochs,
        "max_steps": options.max_steps,
        "max_seq_len": task.max_seq_len,
        "precision": options.precision,
        "seed": seed,
    }
    argv = [sys.executable, "-m", "benchmarks._finetune_trainer", json.dumps(settings)]
    subprocess.run([*argv, str(run / "hub")], check=True, stdout=subprocess.DEVNULL)
    zoo("convert", str(run / "hub"), "-o", str(run / "model"))
    return run / "model"


def evaluate(task: Task, model: Path, data: Path) -> Values:
    """Return the metric, and the bounds of its interval."""
    columns = [word for name, column in task.columns.items() for word in (f"--{name}", column)]
    output = zoo(
        "eval",
        str(model),
        "--task",
        task.name,
        "--eval",
        str(data),
        *columns,
        "--no-record",
        "--json",
    )
    result = json.loads(output)
    return {
        "value": result["metrics"][task.metric],
        "interval": result.get("intervals", {}).get(task.metric),
        "metrics": result["metrics"],
    }


def discard(run: Path) -> None:
    """Remove the weights of a run that was scored."""
    for part in ("run", "hub", "model"):
        shutil.rmtree(run / part, ignore_errors=True)


def cells(values: Sequence[Values]) -> list[str]:
    ordered = sorted(values, key=lambda score: score["value"])
    middle = ordered[len(ordered) // 2]
    bounds = middle["interval"]
    return [
        f"{middle['value']:.3f}",
        f"{ordered[0]['value']:.3f} to {ordered[-1]['value']:.3f}",
        f"{bounds[0]:.3f} to {bounds[1]:.3f}" if bounds else "",
    ]


def is_within(ours: Sequence[Values], theirs: Sequence[Values]) -> bool:
    """Return whether the ranges of both sides' seeds overlap, or ours is above."""
    highest = max(score["value"] for score in ours)
    lowest = min(score["value"] for score in theirs)
    return float(highest) >= float(lowest)


if __name__ == "__main__":
    main()
