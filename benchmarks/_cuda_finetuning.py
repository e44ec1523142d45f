"""Fine-tuning in ``benchmarks.cuda``: a classifier by ``zoo finetune`` and by the ``Trainer``."""

import random
from pathlib import Path
from typing import Any

import torch

from benchmarks._cuda_cells import Barrier, Cell
from benchmarks._cuda_training import COMPILING, STEPS, WARM_UP, memory, prepare, timed
from benchmarks._trainer import trainer_speed
from benchmarks.embed import sentences
from zoo.data.cache import SAMPLE

BATCH = 32
LENGTH = 128
COMPARED = 64  # texts whose losses are compared, in float32 and before training
LABELS = ("even", "odd")


def make_data(folder: Path, *, tiny: bool) -> None:
    """Write sentences with labels, and a classifier of the encoder that is there."""
    import transformers

    texts = sentences(SAMPLE, 128 if tiny else 4096)
    rows = [f"{LABELS[len(text) % 2]}\t{' '.join(text.split())}" for text in texts]
    random.Random(0).shuffle(rows)
    (folder / "train.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "compared.tsv").write_text("\n".join(rows[:COMPARED]) + "\n", encoding="utf-8")
    transformers.set_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder / "encoder",
        id2label=dict(enumerate(LABELS)),
        label2id={name: number for number, name in enumerate(LABELS)},
    )
    model.save_pretrained(folder / "classifier")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "encoder")
    tokenizer.save_pretrained(folder / "classifier")


def measure(cell: Cell, barrier: Barrier) -> dict[str, Any]:
    """Measure a side."""
    sides = {"zoo": with_zoo, "transformers": with_trainer}
    return sides[cell.side](Path(cell.folder), prepare(cell), barrier)


def with_zoo(folder: Path, device: torch.device, barrier: Barrier) -> dict[str, Any]:
    """Time the trainer of ``zoo finetune``."""
    from zoo.finetuning.runs import FineTuneRun
    from zoo.training.build import prepare_run
    from zoo.training.distributed.context import DistContext
    from zoo.training.trainer import Trainer

    config = {
        "task": "text-classification",
        "init_from": {"model": str(folder / "classifier")},
        "data": {
            "train": [str(folder / "train.tsv")],
            "eval": [str(folder / "compared.tsv")],
            "text": "2",
            "label": "1",
        },
        "preset": "default",
        "batch_size": BATCH,
        "max_seq_len": LENGTH,
        "precision": "bfloat16" if device.type == "cuda" else "float32",
        "max_steps": WARM_UP[device.type] + STEPS[device.type],
        "report_to": [],
    }
    setup: Any = FineTuneRun.build_setup(FineTuneRun.build_config(config, {}))
    dist = DistContext(0, 1, device)
    prepared = prepare_run(setup, folder / "none", dist)
    module = prepared.loss_module
    loader = prepared.train_dataloader
    module.eval()
    total = 0.0
    with torch.no_grad():
        for batch in prepared.eval_batches:
            tensors = {name: tensor.to(device) for name, tensor in batch.tensors.items()}
            total += sum(float(value) for value in module(tensors).sums.values())
    trainer = Trainer(module, setup.config, dist, loader)

    def step(index: int) -> int:
        batches = loader.batches(index)
        trainer.train_step(batches)
        return sum(batch.tokens for batch in batches)

    try:
        speed = timed(step, device, barrier)
    finally:
        loader.close()
    return {"tokens_per_second": speed, "loss": total / COMPARED, **memory(device)}


def with_trainer(folder: Path, device: torch.device, barrier: Barrier) -> dict[str, Any]:
    """Time the Trainer with batches of similar length and fused AdamW."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "classifier")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "classifier")
    rows = []
    for line in (folder / "train.tsv").read_text("utf-8").splitlines():
        label, text = line.split("\t")
        encoded = tokenizer(text, truncation=True, max_length=LENGTH)
        rows.append({**encoded, "labels": LABELS.index(label)})
    collate = transformers.DataCollatorWithPadding(tokenizer)
    model.to(device).eval()
    with torch.no_grad():
        loss = float(model(**collate(rows[:COMPARED]).to(device)).loss)
    speed = trainer_speed(
        model.train(),
        rows,
        collate,
        lambda batch: int(batch["attention_mask"].sum()),
        warm_up=WARM_UP[device.type],
        steps=STEPS[device.type],
        barrier=(COMPILING[device.type], barrier),
        per_device_train_batch_size=BATCH,
        train_sampling_strategy="group_by_length",
        optim="adamw_torch_fused",
        bf16=device.type == "cuda",
        use_cpu=device.type == "cpu",
    )
    return {"tokens_per_second": speed, "loss": loss, **memory(device)}
