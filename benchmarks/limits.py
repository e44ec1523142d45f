"""Time and memory of inputs that are large in one respect: labels, blank lines, words, pairs.

    python -m benchmarks.limits
    python -m benchmarks.limits --old OLD/.venv/bin/python -o tests/results/limits.json
    python -m tests.fuzz.table          # writes the table of docs/reliability.md from the record

Each command runs in a process of its own, with ``--old`` also in the environment of another
version. A process that exceeds ``--most-memory`` or ``--most-time`` is stopped, and the table says
so. Each case runs once, and other programs may run meanwhile: only orders of magnitude count.
"""

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._common import Bounds, Process, machine, run_process, table, versions
from zoo.cli import cli

BASE = (
    "--set",
    "vocab_size=400",
    "--set",
    "seq_len=64",
    "--set",
    "seq_len_warmup=null",
    "--set",
    "global_batch_tokens=512",
)
TRAINING = ("--max-steps", "1", "--offline", "--device", "cpu")


@dataclass(frozen=True)
class Sizes:
    """How large the inputs are.

    Attributes:
        evaluated_labels: numbers of labels of ``zoo eval``.
        trained_labels: numbers of labels of ``zoo finetune``.
        blank_bytes: blank lines of a table.
        words: words of a sentence.
        text_bytes: text of a corpus of sentence pairs.
    """

    evaluated_labels: Sequence[int] = (600, 1000)
    trained_labels: Sequence[int] = (20_000, 100_000)
    blank_bytes: int = 50_000_000
    words: int = 1_000_000
    text_bytes: int = 20_000_000


SMOKE = Sizes(
    evaluated_labels=(3,), trained_labels=(4,), blank_bytes=1000, words=500, text_bytes=100_000
)


@dataclass(frozen=True)
class Case:
    """A row of the table.

    Attributes:
        name: what is large.
        command: arguments of ``zoo``.
        preparation: commands that run before it and are not measured.
    """

    name: str
    command: Sequence[object]
    preparation: Sequence[Sequence[object]] = ()


class Version:
    """An installed version, and the directory of its models and runs.

    Args:
        python: interpreter of the environment in which the version is installed.
        folder: directory, which is made.
        bounds: bounds of a command, or ``None`` to run commands in this process.
    """

    def __init__(self, python: str, folder: Path, bounds: Bounds | None) -> None:
        self.python = os.path.abspath(python)
        self.folder = folder
        self.bounds = bounds
        self.env = {"ZOO_HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
        folder.mkdir()

    def zoo(self, *arguments: object) -> Process:
        """Run a command; a failure ends the benchmark."""
        if self.bounds is None:
            start = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                cli.main(list(map(str, arguments)), standalone_mode=False)
            return Process(time.perf_counter() - start, 0.0, 0.0)
        argv = [self.python, "-P", "-m", "zoo", *map(str, arguments)]
        return run_process(argv, self.env, bounds=self.bounds)

    def measure(self, case: Case) -> Process:
        """Run a case."""
        for command in case.preparation:
            prepared = self.zoo(*command)
            if prepared.exceeded:
                return prepared
        return self.zoo(*case.command)


def write_labels(path: Path, labels: int) -> Path:
    """Write a table of texts in which each label has two samples."""
    with path.open("w") as file:
        file.write("text\tlabel\n")
        for number in range(2 * labels):
            file.write(f"text {number}\tlabel {number % labels}\n")
    return path


def write_blank(path: Path, size: int) -> Path:
    """Write a table with blank lines between two samples."""
    with path.open("w") as file:
        file.write("text\tlabel\ntext 0\tlabel 0\n")
        file.write("\n" * size)
        file.write("text 1\tlabel 1\n")
    return path


def write_sentence(path: Path, words: int) -> Path:
    """Write some short sentences with labels of words, and one with many words."""
    with path.open("w") as file:
        for number in range(20):
            file.write(f"word{number} B-A\nword O\n\n")
        for number in range(words):
            file.write(f"word{number % 100} {'B-A' if number % 7 == 0 else 'O'}\n")
    return path


def write_paragraphs(path: Path, size: int) -> Path:
    """Write paragraphs of short sentences."""
    sentence = "The {} cat sat on the mat of number {}."
    written = number = 0
    with path.open("w") as file:
        while written < size:
            lines = [sentence.format(number % 17, number + line) for line in range(8)]
            written += file.write("\n".join(lines) + "\n\n")
            number += 8
    return path


def cases(sizes: Sizes, data: Path, folder: Path) -> Iterator[Case]:
    """Yield the cases of a version, in an order in which later ones use what earlier ones wrote.

    Args:
        sizes: how large the inputs are.
        data: directory of the inputs, which all versions share.
        folder: directory of the models and runs of a version.
    """
    base = folder / "base" / "model"
    small = folder / "small"
    classify = ("--task", "text-classification")
    yield Case(
        f"table with {sizes.blank_bytes / 1e6:g} MB of blank lines: `zoo eval`",
        ("eval", small / "model", *classify, "--eval", data / "blank.tsv", "--no-record"),
        [
            ("pretrain", "bert", *BASE, *TRAINING, "-o", folder / "base"),
            (
                "finetune",
                base,
                *classify,
                "--train",
                data / "labels-2.tsv",
                *TRAINING,
                "-o",
                small,
            ),
        ],
    )
    for count in sizes.evaluated_labels:
        run = folder / f"evaluated-{count}"
        labels = data / f"labels-{count}.tsv"
        yield Case(
            f"{count:,} labels: `zoo eval`",
            ("eval", run / "model", *classify, "--eval", labels, "--no-record"),
            [("finetune", base, *classify, "--train", labels, *TRAINING, "-o", run)],
        )
    for count in sizes.trained_labels:
        run = folder / f"trained-{count}"
        labels = data / f"labels-{count}.tsv"
        yield Case(
            f"{count:,} labels: `zoo finetune`, 1 step",
            ("finetune", base, *classify, "--train", labels, *TRAINING, "-o", run),
        )
    words = ("--task", "token-classification", "--train", data / "words.conll")
    yield Case(
        f"sentence of {sizes.words:,} words: `zoo finetune`, 1 step",
        ("finetune", base, *words, *TRAINING, "-o", folder / "words"),
    )
    corpus = folder / "corpus"
    pairs = ("--train", corpus, "--set", "objective_args.dupe_factor=10")
    pretrain = ("pretrain", "bert", *BASE, *pairs, *TRAINING, "-o")
    text = f"sentence pairs of {sizes.text_bytes / 1e6:g} MB of text, 10 times: `zoo pretrain`"
    build = ("corpus", "build", data / "paragraphs.txt", "--tokenizer", base, "-o", corpus)
    yield Case(f"{text}, first start", (*pretrain, folder / "first"), [build])
    yield Case(f"{text}, second start", (*pretrain, folder / "second"))


def write_data(sizes: Sizes, data: Path) -> None:
    """Write the inputs."""
    data.mkdir()
    for count in (2, *sizes.evaluated_labels, *sizes.trained_labels):
        write_labels(data / f"labels-{count}.tsv", count)
    write_blank(data / "blank.tsv", sizes.blank_bytes)
    write_sentence(data / "words.conll", sizes.words)
    write_paragraphs(data / "paragraphs.txt", sizes.text_bytes)


def measure(
    pythons: dict[str, str], sizes: Sizes, bounds: Bounds | None, report: Callable[[str], object]
) -> dict[str, Any]:
    """Return case -> version -> measurements, each case by all versions in turn."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch, "data")
        write_data(sizes, data)
        known = {name: Version(path, Path(scratch, name), bounds) for name, path in pythons.items()}
        rows = [[*cases(sizes, data, v.folder)] for v in known.values()]
        for row in zip(*rows, strict=True):
            for (name, version), case in zip(known.items(), row, strict=True):
                done = version.measure(case)
                figures = done.exceeded or [round(done.peak_mb), round(done.seconds, 1)]
                results.setdefault(case.name, {})[name] = figures
            report(f"{row[0].name}: {results[row[0].name]}")
    return results


def limits_table(results: dict[str, Any]) -> str:
    """Return the table of a record's results."""
    names = list(next(iter(results.values())))
    rows = [[case, *(_cell(figures[name]) for name in names)] for case, figures in results.items()]
    return table(["", *names], rows)


def _cell(figures: str | Sequence[float]) -> str:
    if isinstance(figures, str):
        return figures
    return f"{figures[0]:,} MB, {figures[1]:.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits")
    parser.add_argument("--old", metavar="PYTHON", help="interpreter of another version")
    parser.add_argument("--most-memory", type=float, default=5, metavar="GB")
    parser.add_argument("--most-time", type=float, default=200, metavar="SECONDS")
    parser.add_argument("--smoke", action="store_true", help="small inputs, in one process")
    parser.add_argument("-o", "--output", type=Path, help="record of the results")
    options = parser.parse_args()
    pythons = {"before": options.old} if options.old and not options.smoke else {}
    pythons["now"] = sys.executable
    results = measure(
        pythons,
        SMOKE if options.smoke else Sizes(),
        None if options.smoke else Bounds(options.most_memory * 1e3, options.most_time),
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    record = {
        "results": results,
        "bounds": {"memory_gb": options.most_memory, "seconds": options.most_time},
        "machine": machine(1),
        "versions": versions("torch", "numpy"),
    }
    if options.output:
        options.output.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print(limits_table(results))
    print(f"\n{record['machine']}; {record['versions']}; each case once")


if __name__ == "__main__":
    main()
