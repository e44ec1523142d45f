"""Quality and time of default runs: ``zoo pretrain FAMILY``, for every family and seed.

    python -m benchmarks.tiny_recipes [FAMILY ...] [--seeds 3] [--threads 2] [--pairs TABLE]
    python -m benchmarks.tiny_recipes FAMILY --label NAME --set key=value ...

Each family is trained from new weights by its recipe for size tiny on the corpus of the package,
and scored on the documents of it that runs hold out:

* masked language models, also those of permutations and of gap sentences: the fraction of hidden
  tokens that are predicted, and that of always predicting the most frequent token; the target is
  twice that;
* discriminators: area under the ROC curve of ``zoo eval --task replaced-tokens``, for rows of 64
  tokens of which a tenth was replaced by others, drawn by their frequency; the target is 0.75;
* causal models: bits per byte of ``zoo eval --task perplexity``;
* models of span corruption and text infilling: bits per byte of masked words, the same for every
  vocabulary, the fraction of their tokens that is predicted, and what their loss grows by with the
  source of another text; see ``masked_words``;
* with ``--pairs``, a table of minimal pairs such as Zorro's: the accuracy of ``zoo eval --task
  minimal-pairs``, where chance is 0.5.

Families whose published models lower-case texts do so here (``--lowercase``), because the recorded
results did. ``--set`` changes settings, for sweeps. ``--keep DIR`` keeps the runs and repeats none
that it has. Prints a row per family, the median over the seeds and the range, and the validation
curves; ``--figures DIR`` draws them.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import machine, table, versions, zoo
from benchmarks.masked_words import score_masked_words
from zoo.data.build import ValidationSplit
from zoo.data.cache import SAMPLE, SAMPLE_EVAL_FRACTION
from zoo.data.corpus import Corpus
from zoo.data.readers.documents import ReaderConfig, expand_paths, read_documents
from zoo.errors import UsageError
from zoo.plugins import all_families
from zoo.training.logging.run_history import RunHistory

DENOISING = ("span-corruption", "text-infilling", "text-infilling+sentence-permutation")
# Objectives whose accuracy is of the tokens that they hide.
HIDING = ("masked-", "permutation-lm", "gap-sentences")
EVALUATIONS = {  # objective -> evaluation of the held-out texts, and its metric
    "replaced-token-detection": ("replaced-tokens", "area_under_curve"),
    "causal-lm": ("perplexity", "bits_per_byte"),
}
# Objectives whose models do not score pairs.
NO_PAIRS = (*DENOISING, "bidirectional-lm", "gap-sentences", "permutation-lm")
COLUMNS = {  # name -> number of digits
    "seconds": 0,
    "CPU seconds": 0,
    "million tokens": 2,
    "loss": 3,
    "accuracy": 3,
    "majority": 3,
    "AUC": 3,
    "bits per byte": 3,
    "gap": 3,
    "gap of first tokens": 3,
    "pairs": 3,
}
HEADINGS = {"area_under_curve": "AUC", "bits_per_byte": "bits per byte"}
CURVES = ("loss", "accuracy", "generator_accuracy", "area_under_curve")
Values = Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="by default all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=Path, help="table of minimal pairs")
    parser.add_argument("--label", default="recipe", help="name of the settings in the table")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--keep", type=Path, help="directory for the runs")
    parser.add_argument("--figures", type=Path, help="directory for figures")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    rows = []
    curves = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        texts = held_out_texts(Path(scratch))
        for family in options.families or pretrained_families():
            runs = [folder / f"{family}-{options.label}-{seed}" for seed in range(options.seeds)]
            values = [measure(family, run, texts, options) for run in runs]
            rows.append([family, options.label, *map(cell(values), COLUMNS)])
            curves[family] = curve([RunHistory.read(run) for run in runs])
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    print(table(["family", "settings", *COLUMNS], rows))
    print(f"\n{machine(options.threads)}; {versions('torch', 'tokenizers')}")
    for family, bands in curves.items():
        print(f"\n## {family}\n\n{curve_table(bands)}")
    if options.figures is not None:
        draw(curves, options.figures)


def pretrained_families() -> list[str]:
    """Return the families that have a recipe of the size tiny."""
    names = []
    for name, family in all_families().items():
        with contextlib.suppress(UsageError):  # Static embeddings are distilled.
            family.recipe("tiny")
            names.append(name)
    return names


def measure(family: str, run: Path, texts: Path, options: argparse.Namespace) -> Values:
    """Train one run, unless it is there, and return the values of its columns."""
    changes = [word for pair in options.set for word in ("--set", pair)]
    seed = run.name.rpartition("-")[2]
    times = pretrain(run, family, "--seed", seed, *changes, *recipe_options(family))
    history = RunHistory.read(run)
    last = history.validation[-1]
    objective = history.config["objective"]
    values = {
        **times,
        "million tokens": history.train[-1]["tokens"] / 1e6,
        "loss": last["loss"],
    }
    if objective.startswith(HIDING):
        values |= {"accuracy": last["metrics"]["accuracy"], "majority": majority(history)}
    if objective in DENOISING:
        values |= {**score_masked_words(run / "model", texts), "majority": majority(history)}
    if objective in EVALUATIONS:
        name, metric = EVALUATIONS[objective]
        values[HEADINGS[metric]] = evaluate(run / "model", name, texts)[metric]
    if options.pairs is not None and objective not in NO_PAIRS:
        values["pairs"] = evaluate(run / "model", "minimal-pairs", options.pairs)["accuracy"]
    return values


def recipe_options(family: str) -> list[str]:
    """Return the options of recorded results: lower case, if published models have it."""
    specs = list(all_families()[family].new_tokenizers.values())
    return ["--lowercase"] if specs and specs[0].lowercase else []


def pretrain(run: Path, family: str, *arguments: object) -> Values:
    """Train a run, unless it is there, and return its seconds and CPU seconds."""
    path = run.with_name(f"{run.name}.times.json")
    if not path.exists():
        started = time.perf_counter()
        cpu_started = cpu_seconds()
        zoo("pretrain", family, "--offline", "-o", run, *arguments)
        seconds = time.perf_counter() - started
        in_cpu = cpu_seconds() - cpu_started
        path.write_text(json.dumps({"seconds": seconds, "CPU seconds": in_cpu}))
    times: Values = json.loads(path.read_text())
    return times


def cpu_seconds() -> float:
    """Return the CPU time of all processes that were started here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def evaluate(model: Path, task: str, data: Path) -> dict[str, float]:
    output = zoo("eval", model, "--task", task, "--eval", data, "--json")
    metrics: dict[str, float] = json.loads(output)["metrics"]
    return metrics


def majority(history: RunHistory) -> float:
    """Return the share of the most frequent token in the held-out documents of a run's corpus."""
    split = Corpus(Path(history.manifest["corpus"])).split("validation")
    counts = np.bincount(split.read(0, split.tokens))
    return float(counts.max() / counts.sum())


def held_out_texts(folder: Path) -> Path:
    """Write the documents of the package that runs hold out to a file, and return it."""
    paths = expand_paths(sorted(SAMPLE.glob("*.txt")))
    documents = list(read_documents(paths, ReaderConfig()))
    held_out = ValidationSplit(documents, SAMPLE_EVAL_FRACTION, 0).is_held_out(0, len(documents))
    path = folder / "held-out.txt"
    texts = [text for text, held in zip(documents, held_out, strict=True) if held]
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


def cell(values: Sequence[Values]) -> Any:
    """Return a function from the name of a column to its cell: median, and range over seeds."""

    def text(name: str) -> str:
        numbers = [value[name] for value in values if name in value]
        return band_text(numbers, COLUMNS[name]) if numbers else ""

    return text


def band_text(numbers: Sequence[float], digits: int) -> str:
    middle, low, high = (
        f"{value:,.{digits}f}" for value in (statistics.median(numbers), min(numbers), max(numbers))
    )
    return middle if low == high else f"{middle} ({low} to {high})"


Curves = dict[str, dict[int, list[float]]]  # metric -> step -> values of all seeds


def curve(histories: Sequence[RunHistory]) -> Curves:
    """Return the evaluations of runs that differ in the seed alone."""
    bands: Curves = {}
    for history in histories:
        for record in history.validation:
            values = {"loss": record["loss"], **record["metrics"]}
            for name in CURVES:
                if name in values:
                    bands.setdefault(name, {}).setdefault(record["step"], []).append(values[name])
    return bands


def curve_table(bands: Curves) -> str:
    rows = [
        [f"{step:,}", *(band_text(bands[name][step], 3) for name in bands)]
        for step in bands["loss"]
    ]
    return table(["step", *(HEADINGS.get(name, name.replace("_", " ")) for name in bands)], rows)


def draw(curves: Mapping[str, Curves], folder: Path) -> None:
    """Write a figure of each metric, with a line per family."""
    from zoo.report.figures import plot_bands

    folder.mkdir(parents=True, exist_ok=True)
    for name in CURVES:
        lines = {
            family: [
                (step, statistics.median(values), min(values), max(values))
                for step, values in bands[name].items()
            ]
            for family, bands in curves.items()
            if name in bands
        }
        if lines:
            label = HEADINGS.get(name, name.replace("_", " "))
            plot_bands(folder / f"tiny-{name}.svg", {f"validation {label}": lines}, x="step")


if __name__ == "__main__":
    main()
