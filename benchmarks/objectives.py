"""Shown: every family learns its own objective on real text; validation by step.

    python -m benchmarks.objectives FOLDER [--steps 500] [--family F ...] [--keep DIR]

FOLDER has ``train`` and ``validation`` with text files in which blank lines end documents. Each
family is trained at size tiny by its recipe, from fresh weights, with a tokenizer that is trained
on FOLDER/train, by the command that is printed.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks._common import machine, table, versions
from zoo.training.journal import read

FAMILIES = (
    "bert",
    "roberta",
    "albert",
    "distilbert",
    "electra",
    "deberta",
    "gpt",
    "t5",
    "elmo",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--family", action="append")
    parser.add_argument("--keep", type=Path, help="where to leave the runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs = options.keep or Path(scratch)
        for family in options.family or FAMILIES:
            print(f"## {family}\n\n{train(family, runs / family, options)}\n", flush=True)
    threads = int(os.environ.get("OMP_NUM_THREADS", "0")) or None
    print(f"{machine(threads)}; {versions('torch', 'tokenizers')}")


def train(family: str, run: Path, options: argparse.Namespace) -> str:
    """Train one family, and return the command and the table of its validations."""
    arguments = ["pretrain", family, "--steps", str(options.steps)]
    shown = ["--data", "FOLDER/train", "--validation-data", "FOLDER/validation"]
    real = [part.replace("FOLDER", str(options.folder)) for part in shown]
    if not run.exists():
        command = [sys.executable, "-m", "zoo", *arguments, *real, "-o", str(run)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    log = read(run)
    found = [record for record in log if record["split"] == "validation"]
    names = ["loss", *(n for n in found[0]["losses"] if len(found[0]["losses"]) > 1)]
    metrics = list(found[0]["metrics"])
    rows = [
        [
            f"{record['step']:,}",
            *(f"{({'loss': record['loss']} | record['losses'])[name]:.3f}" for name in names),
            *(f"{record['metrics'][name]:.3f}" for name in metrics),
        ]
        for record in found
    ]
    tokens = max(record.get("tokens", 0) for record in log)
    said = f"`{shlex.join(['zoo', *arguments, *shown])}`, {tokens:,} tokens seen"
    return f"{said}\n\n{table(['step', *names, *metrics], rows)}"


if __name__ == "__main__":
    main()
