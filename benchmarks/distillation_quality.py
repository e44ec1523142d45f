"""Quality of distilled students beside their teacher and students that were not distilled.

    python -m benchmarks.distillation_quality sentences MODEL --data DIR [--layers 3 2 1]
    python -m benchmarks.distillation_quality tasks MODEL --data DIR [--seeds 3] [--rows 10000]
    python -m benchmarks.distillation_quality text TEACHER --data DIR [--seeds 3] [--steps 800]

*sentences*: a sentence encoder into students of fewer of its layers, by embeddings and hidden
states, on the sentences of DIR (SST-2, MRPC, CoLA, SICK's training part, without labels).
Spearman's correlation with the relatedness of SICK's trial pairs, and latency at batch 1. Targets:
97 % of the teacher's correlation with 3 layers, at 55 % of its latency, and 95 % with 2.

*tasks*: MODEL fine-tuned on MRPC and SST-2 teaches students of its first 3 layers: fine-tuned
alone, with logits (KD), and with hidden states, too (patient KD; Sun et al. 2019, arXiv:1908.09355,
whose table has them in this order). ``--rows`` trains on the first rows of the shuffled data.

*text*: a masked language model into students of half its layers on the corpus of DIR: DistilBERT's
recipe, the same without copied layers, without hidden states, and the student from new weights by
its own objective, with equal steps and data. Sanh et al. 2019, arXiv:1910.01108, have them in the
order distilled, new weights, from scratch. TEACHER is a run of ``zoo pretrain`` with the objective
masked-lm; students have its rows and batches. ``--sides`` selects some.

``--keep DIR`` keeps the runs and repeats none that it has. Prints medians over the seeds and
ranges.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks._common import machine, table, versions, zoo
from benchmarks.finetune_quality import TASKS, files
from zoo.data.readers.labelled import Columns, read_samples
from zoo.training.logging.run_history import RunHistory

Scores = dict[str, float]
Recipe = Mapping[str, Any]

SENTENCE_RECIPE: Recipe = {
    "source": "Reimers and Gurevych, model_distillation.py of sentence-transformers; TinyBERT",
    "data": "sentences",
    "objective_weight": 0.0,
    "terms": {
        "embeddings": {"kind": "embeddings", "reduction": "elements", "weight": 100.0},
        "hidden": {"kind": "hidden-mse", "layers": "uniform", "reduction": "elements"},
    },
    "init_layers": "uniform",
    "settings": {
        "num_train_epochs": 2.0,
        "batch_size": 64,
        "max_seq_len": 128,
        "warmup_ratio": 0.1,
        "optimizer": {"name": "adamw", "learning_rate": 3e-4, "eps": 1e-6},
    },
}
TASK_SETTINGS = {
    "num_train_epochs": 2.0,
    "batch_size": 32,
    "max_seq_len": 128,
    "warmup_ratio": 0.1,
    "optimizer": {"learning_rate": 5e-5},
}
KD = {"kind": "kl", "weight": 0.7, "temperature": 10.0, "reduction": "elements"}
PATIENT = {"kind": "first-token-mse", "weight": 100.0, "layers": "skip", "reduction": "elements"}
TASK_RECIPES: Mapping[str, Recipe] = {
    "fine-tuned alone": {"objective_weight": 1.0},
    "KD": {"objective_weight": 0.3, "terms": {"kl": KD}},
    "patient KD": {"objective_weight": 0.3, "terms": {"kl": KD, "first_token": PATIENT}},
}
TEXT_SIDES: Mapping[str, Sequence[str]] = {
    "distilled": (),
    "distilled, new weights": ("distillation.init_layers=null",),
    "distilled, no hidden states": ("distillation.terms.cosine.weight=0",),
    "from scratch": (
        "distillation.init_layers=null",
        "distillation.objective_weight=1",
        "distillation.terms.cosine.weight=0",
        "distillation.terms.kl.weight=0",
    ),
}
TEXT_SETTINGS = ("seq_len", "seq_len_warmup", "global_batch_tokens", "optimizer", "lr_scheduler")
STUDENT_LAYERS = 3  # on tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data")
    parser.add_argument("--layers", type=int, nargs="+", default=[3, 2, 1])
    parser.add_argument("--tasks", nargs="+", choices=["mrpc", "sst2"], default=["mrpc", "sst2"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=800, help="of students on text")
    parser.add_argument("--sides", nargs="+", choices=list(TEXT_SIDES), default=list(TEXT_SIDES))
    parser.add_argument("--rows", type=int, help="number of training rows of a task")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="directory for the runs")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.keep or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        header, rows = PARTS[options.part](folder, options)
    print(table(header, rows))
    print(f"\n{machine(options.threads)}; {versions('torch')}; {options.precision}")


def distil(run: Path, seed: int, options: argparse.Namespace, *words: object) -> Path:
    """Distil a student, unless the run is there, and return the directory of the run."""
    if not (run / "model").exists():
        shutil.rmtree(run, ignore_errors=True)
        changes = [f"precision={options.precision}", "report_to=[]", *options.set]
        settings = [word for change in changes for word in ("--set", change)]
        zoo("distill", "--offline", "--seed", seed, "-o", run, *words, *settings)
        print(run.name, file=sys.stderr, flush=True)
    return run


def write_recipe(path: Path, recipe: Recipe) -> Path:
    path.write_text(yaml.safe_dump(dict(recipe)), encoding="utf-8")
    return path


def sentences(folder: Path, options: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    """Return the table of sentence encoders."""
    data = folder / "sentences.txt"
    recipe = write_recipe(folder / "sen.yaml", SENTENCE_RECIPE)
    texts = sorted({text for name in ("sst2", "mrpc", "cola") for text in texts_of(name, options)})
    texts += sorted(set(texts_of("sick-relatedness", options)))
    data.write_text("\n".join(texts) + "\n", encoding="utf-8")
    values: dict[str, list[Scores]] = {"teacher": [relatedness(options.model, options)]}
    for layers in options.layers:
        name = f"{layers} layers"
        for seed in range(options.seeds):
            run = distil(
                folder / f"sentences-{layers}-{seed}",
                seed,
                options,
                "--teacher",
                options.model,
                "--student",
                "bert",
                "--recipe",
                recipe,
                "--train",
                data,
                "--set",
                f"student.num_layers={layers}",
            )
            student = relatedness(run / "model", options)
            values.setdefault(name, []).append({**student, **speed(run)})
    teacher = values["teacher"][0]["spearman"]
    rows = [
        [
            name,
            band([score["spearman"] for score in scores]),
            band([score["spearman"] / teacher for score in scores]),
            band([score.get("latency", 1.0) for score in scores], 2),
        ]
        for name, scores in values.items()
    ]
    return ["model", "Spearman", "of the teacher", "latency / teacher's"], rows


def texts_of(name: str, options: argparse.Namespace) -> list[str]:
    """Return the texts of a task's training data, without line breaks."""
    task = TASKS[name]
    samples = read_samples([options.data / task.train], Columns(**task.columns))
    texts = [text for sample in samples for text in (sample.text, sample.pair) if text]
    return [re.sub(r"\s+", " ", text) for text in texts]


def relatedness(model: Path, options: argparse.Namespace) -> Scores:
    """Return the rank correlation of a model's similarities with SICK's trial pairs."""
    task = TASKS["sick-relatedness"]
    columns = [word for name, column in task.columns.items() for word in (f"--{name}", column)]
    output = zoo(
        "eval",
        model,
        "--task",
        "sentence-embedding",
        "--eval",
        options.data / task.eval,
        *columns,
        "--no-record",
        "--json",
    )
    return {"spearman": json.loads(output)["metrics"]["spearman"]}


def speed(run: Path) -> Scores:
    """Return a student's latency at one row, divided by the teacher's."""
    scores = json.loads((run / "scores.json").read_text("utf-8"))
    latency = [
        next(entry["latency"] for entry in model["speed"] if entry["backend"] == "cpu")
        for model in (scores["student"], scores["teachers"][0])
    ]
    return {"latency": latency[0] / latency[1]}


def tasks(folder: Path, options: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    """Return the table of classifiers."""
    rows = []
    for name in options.tasks:
        task = TASKS[name]
        columns = [word for key, column in task.columns.items() for word in (f"--{key}", column)]
        train, evaluation = files(task, options.rows or 0, folder, options.data)
        labelled = ("--task", task.name, "--train", train, "--eval", evaluation, *columns)
        teacher = folder / f"{name}-teacher"
        if not (teacher / "model").exists():
            rate = f"optimizer.learning_rate={task.learning_rate}"
            changes = (rate, "report_to=[]", f"precision={options.precision}")
            words = ("--preset", "default", *(word for c in changes for word in ("--set", c)))
            zoo("finetune", options.model, "--offline", *labelled, *words, "-o", teacher)
        rows.append([name, "teacher", str(layers_of(teacher)), result(teacher, task.metric)])
        for side, recipe in TASK_RECIPES.items():
            whole = {"init_layers": "first", "data": "labelled", "settings": TASK_SETTINGS}
            path = write_recipe(folder / f"{slug(side)}.yaml", {**whole, **recipe})
            runs = [
                distil(
                    folder / f"{name}-{slug(side)}-{seed}",
                    seed,
                    options,
                    "--teacher",
                    teacher / "model",
                    "--student",
                    "bert",
                    "--recipe",
                    path,
                    "--set",
                    f"student.num_layers={STUDENT_LAYERS}",
                    "--no-score",
                    *labelled,
                )
                for seed in range(options.seeds)
            ]
            values = [float(result(run, task.metric)) for run in runs]
            rows.append([name, side, str(STUDENT_LAYERS), band(values)])
    return ["task", "model", "layers", "metric"], rows


def layers_of(run: Path) -> int:
    """Return the number of layers of a run's model."""
    config = json.loads((run / "model" / "config.json").read_text("utf-8"))
    return int(config["config"]["num_layers"])


def result(run: Path, metric: str) -> str:
    """Return a metric of the best evaluation of a run."""
    best = RunHistory.read(run).best or {}
    return f"{best['metrics'][metric]:.4f}"


def text(folder: Path, options: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    """Return the table of masked language models."""
    rows = []
    corpus = options.data / "corpus"
    history = RunHistory.read(options.model)
    teacher = history.validation[-1]
    shared = [f"{name}={json.dumps(history.config[name])}" for name in TEXT_SETTINGS]
    loss = teacher["losses"]["masked-lm"]
    rows.append(["teacher", f"{loss:.3f}", f"{teacher['metrics']['accuracy']:.3f}"])
    for side in options.sides:
        finals = []
        changes = [*shared, *TEXT_SIDES[side]]
        for seed in range(options.seeds):
            run = distil(
                folder / f"text-{slug(side)}-{seed}",
                seed,
                options,
                "--teacher",
                options.model / "model",
                "--student",
                "distilbert",
                "--no-score",
                "--train",
                corpus / "train",
                "--eval",
                corpus / "validation",
                "--max-steps",
                options.steps,
                *[word for change in changes for word in ("--set", change)],
            )
            finals.append(RunHistory.read(run).validation[-1])
        losses = [final["losses"]["masked-lm"] for final in finals]
        accuracies = [final["metrics"]["accuracy"] for final in finals]
        rows.append([side, band(losses), band(accuracies)])
    return ["model", "held-out loss", "accuracy of masked tokens"], rows


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def band(values: Sequence[float], digits: int = 3) -> str:
    """Return the median, and the range where there are several values."""
    median = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return median
    return f"{median} ({min(values):.{digits}f} to {max(values):.{digits}f})"


PARTS: dict[str, Callable[[Path, argparse.Namespace], tuple[list[str], list[list[str]]]]] = {
    "sentences": sentences,
    "tasks": tasks,
    "text": text,
}


if __name__ == "__main__":
    main()
