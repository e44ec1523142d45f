"""Quality, speed and memory of adapters: ``zoo finetune --adapter`` next to peft.

    python -m benchmarks.adapters MODEL DATA [--seeds 3] [--rows N] [--steps N]

MODEL is a directory in the Hub's layout; DATA has ``SST-2/train.tsv`` and ``SST-2/dev.tsv``, or
other tables that ``--train`` and ``--eval`` name. Each method is trained with several seeds:

* *full*: all weights; *head*: a frozen model with a head;
* *lora-4*, *lora-8*, *lora-16*, *dora-8*, *ia3*, *houlsby*, *pfeiffer*: adapters;
* *peft lora-R*, *peft ia3*: the same in peft, by the Trainer of transformers with grouped batches.

All read the same rows, with the same number of steps, batch size, learning rate and schedule. The
table has the accuracy (mean and range over the seeds), trained parameters, bytes of the result,
tokens per second of training and peak memory of the process. Each side is a process of its own.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks._common import machine, versions

BATCH, LENGTH = 32, 128
RATES = {"full": 2e-5, "head": 1e-3, "ia3": 3e-3, "houlsby": 1e-3, "pfeiffer": 1e-3}
LORA_RATE = 5e-4
SIDES = (
    *("full", "head", "lora-4", "lora-8", "lora-16", "dora-8", "ia3", "houlsby", "pfeiffer"),
    *("peft lora-4", "peft lora-8", "peft lora-16", "peft ia3"),
)
Result = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--train", default="SST-2/train.tsv")
    parser.add_argument("--eval", default="SST-2/dev.tsv")
    parser.add_argument("--text", default="sentence", help="column of the text")
    parser.add_argument("--label", default="label", help="column of the label")
    parser.add_argument("--rows", type=int, help="rows to train on; by default all")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--smoke", action="store_true", help="two steps of one seed")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.seeds = 2, 1
    if options.side:
        print(json.dumps(run_side(options)))
        return
    print(f"{machine(1)}; {versions('torch', 'transformers', 'peft')}\n")
    print("| method | accuracy | range | trained | bytes | tokens/s | peak MB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for side in options.sides:
        print(table_row(side, [measure(side, seed, options) for seed in range(options.seeds)]))


def measure(side: str, seed: int, options: argparse.Namespace) -> Result:
    """Train one side with one seed in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.adapters", str(options.model), str(options.data)]
    for name in ("train", "eval", "text", "label", "steps"):
        command += [f"--{name}", str(getattr(options, name))]
    command += [] if options.rows is None else ["--rows", str(options.rows)]
    done = subprocess.run(
        [*command, "--side", side, "--seed", str(seed)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{side}: {done.stderr[-2000:]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def table_row(side: str, results: list[Result]) -> str:
    """Return the line of a side: means over the seeds, and the range of the accuracy."""

    def mean(name: str) -> float:
        return statistics.mean(result[name] for result in results)

    scores = [result["accuracy"] for result in results]
    cells = [
        *(side, f"{mean('accuracy'):.4f}", f"{min(scores):.4f} to {max(scores):.4f}"),
        *(f"{mean('trained'):,.0f}", f"{mean('bytes'):,.0f}"),
        *(f"{mean('rate'):,.0f}", f"{mean('peak') / 2**20:,.0f}"),
    ]
    return f"| {' | '.join(cells)} |"


def run_side(options: argparse.Namespace) -> Result:
    """Train and evaluate one side."""
    import resource

    train: Callable[[Path, argparse.Namespace], Result] = (
        with_peft if options.side.startswith("peft ") else with_zoo
    )
    with tempfile.TemporaryDirectory() as scratch:
        result = train(Path(scratch), options)
    return {**result, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0}


def training_file(scratch: Path, options: argparse.Namespace) -> Path:
    """Return the table to train on, with the first rows."""
    lines = (options.data / options.train).read_text("utf-8-sig").splitlines()
    rows = lines if options.rows is None else lines[: 1 + options.rows]
    path = scratch / "train.tsv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def rate_of(side: str) -> float:
    """Return the learning rate of a method."""
    return RATES.get(side.removeprefix("peft "), LORA_RATE)


def adapter_of(side: str) -> Mapping[str, Any] | None:
    """Return the settings of the adapter of a side."""
    if side in ("full", "head"):
        return None
    method, _, rank = side.partition("-")
    return {"method": method, **({"rank": int(rank), "alpha": int(rank)} if rank else {})}


def with_zoo(scratch: Path, options: argparse.Namespace) -> Result:
    """Train with zoo."""
    import time

    from zoo.convert.cache import resolve_checkpoint
    from zoo.finetuning.runs import FineTuneRun
    from zoo.inference.load_model import load_model
    from zoo.nn.stacks import stacks
    from zoo.training.distributed.context import DistContext
    from zoo.training.logging.jsonl import read_jsonl

    layers = 0
    if options.side == "head":
        model = load_model(resolve_checkpoint(str(options.model)))
        layers = max(len(stack.order) for stack in stacks(model))
    settings = {
        "task": "text-classification",
        "init_from": {"model": str(options.model)},
        "adapter": adapter_of(options.side),
        "freeze_layers": layers,
        "data": {
            "train": [str(training_file(scratch, options))],
            "eval": [str(options.data / options.eval)],
            "text": options.text,
            "label": options.label,
        },
        "preset": "default",
        "batch_size": BATCH,
        "max_seq_len": LENGTH,
        "max_steps": options.steps,
        "eval_steps": options.steps,
        "warmup_ratio": 0.06,
        "optimizer": {"learning_rate": rate_of(options.side), "weight_decay": 0.0},
        "seed": options.seed,
        "report_to": [],
    }
    run = FineTuneRun(settings, DistContext.initialize("cpu"), scratch / "run")
    began = time.monotonic()
    paths = run.start()
    seconds = time.monotonic() - began
    last = [record for record in read_jsonl(paths.run) if record["split"] == "validation"][-1]
    speed = read_jsonl(paths.run, "performance.jsonl")
    rates = [record["tokens_per_second"] for record in speed if "tokens_per_second" in record]
    (file,) = paths.model.glob("*.safetensors")
    trained = trained_parameters(paths.run)
    tokens = max((record.get("tokens", 0) for record in read_jsonl(paths.run)), default=0)
    return {
        "accuracy": last["metrics"]["accuracy"],
        "trained": trained,
        "bytes": float(file.stat().st_size),
        "rate": statistics.median(rates) if rates else tokens / seconds,
    }


def trained_parameters(run: Path) -> float:
    """Return the number of parameters that a run trained, by the tensors of its checkpoint."""
    from safetensors import safe_open

    (file, *_) = sorted(run.glob("model/*.safetensors"))
    with safe_open(file, framework="pt") as opened:
        names = list(opened.keys())
        return float(sum(opened.get_tensor(name).numel() for name in names))


def with_peft(scratch: Path, options: argparse.Namespace) -> Result:
    """Train with peft, by the Trainer of transformers."""
    import time

    import numpy as np
    import peft
    import transformers

    from zoo.data.readers.labelled import Columns, label_name, read_samples, sort_labels

    transformers.set_seed(options.seed)
    columns = Columns(text=options.text, label=options.label)
    files = [training_file(scratch, options), options.data / options.eval]
    splits = [list(read_samples([str(file)], columns)) for file in files]
    labels = sort_labels([label_name(row.label, row.location) for row in splits[0]])
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)

    def rows(samples: list[Any]) -> list[dict[str, Any]]:
        encoded = (tokenizer(s.text, truncation=True, max_length=LENGTH) for s in samples)
        ids = (labels.index(label_name(s.label, s.location)) for s in samples)
        return [{**row, "labels": label} for row, label in zip(encoded, ids, strict=True)]

    train, held = (rows(samples) for samples in splits)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        options.model, num_labels=len(labels)
    )
    kind, _, rank = options.side.removeprefix("peft ").partition("-")
    config: Any = (
        peft.IA3Config(task_type="SEQ_CLS")
        if kind == "ia3"
        else peft.LoraConfig(task_type="SEQ_CLS", r=int(rank), lora_alpha=int(rank))
    )
    adapted: Any = peft.get_peft_model(model, config)
    arguments = transformers.TrainingArguments(
        str(scratch / "trainer"),
        learning_rate=rate_of(options.side),
        max_steps=options.steps,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        warmup_steps=round(0.06 * options.steps),
        train_sampling_strategy="group_by_length",
        optim="adamw_torch_fused",
        use_cpu=True,
        seed=options.seed,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    tokens = 0
    padded = transformers.DataCollatorWithPadding(tokenizer)

    def collate(batch: list[dict[str, Any]]) -> Any:
        nonlocal tokens
        tokens += sum(len(row["input_ids"]) for row in batch)
        return padded(batch)

    trainer = transformers.Trainer(
        model=adapted, args=arguments, train_dataset=train, data_collator=collate
    )
    began = time.monotonic()
    trainer.train()
    rate = tokens / (time.monotonic() - began)
    predicted = np.argmax(trainer.predict(held).predictions, -1)
    accuracy = float(np.mean([p == row["labels"] for p, row in zip(predicted, held, strict=True)]))
    adapted.save_pretrained(str(scratch / "adapter"))
    trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    size = (scratch / "adapter" / "adapter_model.safetensors").stat().st_size
    return {
        "accuracy": accuracy,
        "trained": float(trained),
        "bytes": float(size),
        "rate": rate,
    }


if __name__ == "__main__":
    main()
