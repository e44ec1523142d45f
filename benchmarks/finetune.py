"""Speed and memory of fine-tuning: ``zoo finetune`` beside the ``Trainer`` of transformers.

    python -m benchmarks.finetune MODEL TRAIN.tsv [--text 1] [--label 2] [--threads 2] [--steps 60]
    python -m benchmarks.finetune MODEL TRAIN.tsv --precision bfloat16

MODEL is a directory in the Hub's layout; TRAIN.tsv has texts with labels. Targets: 1.5 times the
tokens per second of the Trainer with its defaults, 1.15 times those of the Trainer with batches of
similar length and fused AdamW, 0.8 of the memory of the former.

All fine-tune the same weights, with the same head, on batches of 32 texts of at most 128 tokens:

* *Trainer*: its defaults, batches padded to their longest text;
* *grouped*: ``train_sampling_strategy="group_by_length"`` and fused AdamW;
* *zoo*: the trainer of ``zoo finetune`` with its defaults.

``--precision bfloat16`` is mixed precision on all sides. Padding does not count as tokens. Loading,
tokenization, evaluation and saving are not measured. Each side is a process of its own, in turn in
each round. The losses of 64 texts before training, in float32, are compared first.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._common import machine, versions
from benchmarks._sides import (
    Measured,
    Side,
    add_side_options,
    alternate_sides,
    is_side,
    require_equal_losses,
    run_side,
    speed_table,
    timed_steps,
)

BATCH = 32
LENGTH = 128
WARM_UP = 5
COMPARED = 64
TOLERANCE = 1e-4  # of the losses before training, relative
MODULE = "benchmarks.finetune"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("train", type=Path)
    parser.add_argument("--text", default="1", help="column of the text")
    parser.add_argument("--label", default="2", help="column of the label")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    add_side_options(parser, steps=60)
    options = parser.parse_args()
    if options.smoke:
        options.steps = 2
        options.rounds = 1
    if is_side(options, {"model": make_model, **SIDES}):
        return
    with tempfile.TemporaryDirectory() as scratch:
        run_side(MODULE, "model", make_model, scratch, options)
        timings = alternate_sides(MODULE, SIDES, scratch, options)
    require_equal_losses(timings, ["zoo", "grouped", "Trainer"], TOLERANCE)
    print(f"{machine(options.threads)}; {versions('torch', 'transformers', 'accelerate')}\n")
    print(speed_table(timings, "tokens/s", ["Trainer", "grouped"]))


def samples(options: argparse.Namespace) -> tuple[list[str], list[int], tuple[str, ...]]:
    """Return the texts, the number of the label of each, and the labels."""
    from zoo.data.readers.labelled import Columns, label_name, read_samples, sort_labels

    rows = read_samples([options.train], Columns(text=options.text, label=options.label))
    names = [label_name(row.label, row.location) for row in rows]
    labels = sort_labels(names)
    return [row.text for row in rows], [labels.index(name) for name in names], labels


def make_model(scratch: Path, options: argparse.Namespace) -> Measured:
    """Save the model with a new head."""
    import transformers

    transformers.set_seed(0)
    _, _, labels = samples(options)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        options.model,
        id2label=dict(enumerate(labels)),
        label2id={name: number for number, name in enumerate(labels)},
    )
    model.save_pretrained(scratch / "model")
    transformers.AutoTokenizer.from_pretrained(options.model).save_pretrained(scratch / "model")
    return {}


def with_trainer(scratch: Path, options: argparse.Namespace, **arguments: Any) -> Measured:
    """Time the Trainer of transformers."""
    import torch
    import transformers

    from benchmarks._trainer import trainer_speed

    tokenizer = transformers.AutoTokenizer.from_pretrained(scratch / "model")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(scratch / "model")
    texts, labels, _ = samples(options)
    encoded = [tokenizer(text, truncation=True, max_length=LENGTH) for text in texts]
    rows = [{**row, "labels": label} for row, label in zip(encoded, labels, strict=True)]
    collate = transformers.DataCollatorWithPadding(tokenizer)
    with torch.no_grad():
        loss = model.eval()(**collate(rows[:COMPARED])).loss.item()
    rate = trainer_speed(
        model.train(),
        rows,
        collate,
        lambda batch: int(batch["attention_mask"].sum()),
        warm_up=WARM_UP,
        steps=options.steps,
        per_device_train_batch_size=BATCH,
        use_cpu=True,
        bf16=options.precision == "bfloat16",
        **arguments,
    )
    return {"rate": rate, "losses": [loss]}


def trainer_defaults(scratch: Path, options: argparse.Namespace) -> Measured:
    """Time the Trainer with its defaults."""
    return with_trainer(scratch, options)


def trainer_grouped(scratch: Path, options: argparse.Namespace) -> Measured:
    """Time the Trainer with batches of similar length and fused AdamW."""
    grouped = {"train_sampling_strategy": "group_by_length", "optim": "adamw_torch_fused"}
    return with_trainer(scratch, options, **grouped)


def with_zoo(scratch: Path, options: argparse.Namespace) -> Measured:
    """Time the trainer of the zoo."""
    import torch

    from zoo.finetuning.runs import FineTuneRun
    from zoo.training.build import prepare_run
    from zoo.training.distributed.context import DistContext
    from zoo.training.trainer import Trainer

    lines = options.train.read_text("utf-8-sig").splitlines()
    compared = scratch / f"compared{options.train.suffix}"
    header = 0 if options.text.isdecimal() else 1
    compared.write_text("\n".join(lines[: header + COMPARED]) + "\n", encoding="utf-8")
    config = {
        "task": "text-classification",
        "init_from": {"model": str(scratch / "model")},
        "data": {
            "train": [str(options.train)],
            "eval": [str(compared)],
            "text": options.text,
            "label": options.label,
        },
        "preset": "default",
        "batch_size": BATCH,
        "max_seq_len": LENGTH,
        "precision": options.precision,
        "max_steps": WARM_UP + options.steps,
        "report_to": [],
    }
    dist = DistContext.initialize("cpu")
    setup: Any = FineTuneRun.build_setup(FineTuneRun.build_config(config, {}))
    prepared = prepare_run(setup, scratch / "none", dist)
    module = prepared.loss_module
    loader = prepared.train_dataloader
    with torch.no_grad():
        module.eval()
        sums = [sum(module(batch.tensors).sums.values()) for batch in prepared.eval_batches]
    trainer = Trainer(module, setup.config, dist, loader)

    def step(number: int) -> tuple[float, int]:
        batches = loader.batches(number)
        trainer.train_step(batches)
        return 0.0, sum(batch.tokens for batch in batches)

    measured = timed_steps(WARM_UP + options.steps, WARM_UP, step)
    loader.close()
    return {**measured, "losses": [float(sum(sums)) / COMPARED]}


SIDES: dict[str, Side] = {
    "Trainer": trainer_defaults,
    "grouped": trainer_grouped,
    "zoo": with_zoo,
}


if __name__ == "__main__":
    main()
