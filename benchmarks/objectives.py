"""Validation curves: each family is pretrained on its own objective on real text.

    python -m benchmarks.objectives FOLDER [--run NAME ...] [--keep DIR]

FOLDER has ``train`` and ``validation`` with text files in which blank lines end documents. Each
family is trained at size tiny by its recipe, from new weights, with a tokenizer that is trained on
FOLDER/train, by the command that is printed. Further runs train ELECTRA in two stages
(arXiv:2003.10555, section 3.2): the discriminator starts from a masked language model, with a new
generator, or with a generator that starts from it, too. Runs that DIR has already are not repeated.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks._common import machine, table, versions
from zoo.training.logging.jsonl import read_jsonl

FAMILIES = (
    "electra",
    "gpt",
    "t5",
    "bert",
    "roberta",
    "albert",
    "distilbert",
    "deberta",
    "elmo",
)
STAGE = (
    "electra --max-steps 1000 --global-batch-tokens 8192 --set seq_len=16 "
    "--set lr_scheduler.warmup_steps=100"
)
MASKED = f"{STAGE} --objective masked-lm --set vocab_size=600 --set config.initializer_range=0.05"
DETECTION = f"{STAGE} --set optimizer.learning_rate=0.001 --set eval_sequences=1024"
FRESH = "discriminator.head"
RUNS = {
    **{family: f"{family} --max-steps 500" for family in FAMILIES},
    "masked": f"{MASKED} --set optimizer.learning_rate=0.002",
    "new-generator": f"{DETECTION} --init-from RUNS/masked/model "
    f"--set 'init_from.new_modules=[generator,{FRESH}]'",
    # the intermediate size of a generator is four times its hidden size
    "masked-wide": f"{MASKED} --set config.intermediate_size=512 "
    "--set optimizer.learning_rate=0.002",
    "taught-generator": f"{DETECTION} --init-from RUNS/masked-wide/model "
    f"--set init_from.generator=RUNS/masked-wide/model "
    f"--set objective_args.generator_width_ratio=1.0 "
    f"--set 'init_from.new_modules=[{FRESH}]'",
}
TEXTS = "--data FOLDER/train --eval-data FOLDER/validation"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="append", choices=RUNS, help="by default all")
    parser.add_argument("--keep", type=Path, help="where to leave the runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs = options.keep or Path(scratch)
        for name in options.run or RUNS:
            print(f"## {name}\n\n{train(name, runs, options.folder)}\n", flush=True)
    threads = int(os.environ.get("OMP_NUM_THREADS", "0")) or None
    print(f"{machine(threads)}; {versions('torch', 'tokenizers')}")


def train(name: str, runs: Path, folder: Path) -> str:
    """Train one run, and return its command and the table of its evaluations."""
    shown = f"zoo pretrain {RUNS[name]} {TEXTS} -o RUNS/{name}"
    real = shown.replace("FOLDER", str(folder)).replace("RUNS", str(runs))
    run = runs / name
    if not run.exists():
        command = [sys.executable, "-m", *shlex.split(real)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    log = read_jsonl(run)
    records = [record for record in log if record["split"] == "validation"]
    names = ["loss", *(n for n in records[0]["losses"] if len(records[0]["losses"]) > 1)]
    metrics = list(records[0]["metrics"])
    rows = [
        [
            f"{record['step']:,}",
            *(f"{({'loss': record['loss']} | record['losses'])[name]:.3f}" for name in names),
            *(f"{record['metrics'][name]:.3f}" for name in metrics),
        ]
        for record in records
    ]
    tokens = max(record.get("tokens", 0) for record in log)
    caption = f"`{shown}`, {tokens:,} tokens seen"
    return f"{caption}\n\n{table(['step', *names, *metrics], rows)}"


if __name__ == "__main__":
    main()
