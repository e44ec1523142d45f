"""Small tables and runs of about a second, for tests of fine-tuning."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import yaml
from torch import Tensor, nn

from tests.training.runs import (
    assert_resumes_from,
    finish_in_two_processes,
    records,
    width_of,
)
from zoo.errors import UsageError
from zoo.finetuning.runs import FineTuneRun
from zoo.finetuning.setup import FineTuneSetup, finetune_setup
from zoo.objectives.base import Batch
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.overrides import deep_merge
from zoo.training.config.schema import validate_config
from zoo.training.distributed.context import DistContext
from zoo.training.optim.lr_scheduler import lr_multiplier

HERE = DistContext(0, 1, torch.device("cpu"))
LETTERS = "abcdefghij"
SETTINGS: Mapping[str, Any] = {
    "preset": "default",
    "batch_size": 8,
    "micro_batch_size": 4,
    "max_steps": 12,
    "eval_steps": 4,
    "save_steps": 2,
    "keep_optimizer": True,
    "logging_steps": 1,
    "optimizer": {"learning_rate": 1e-3},
    "lr_scheduler": {"warmup_steps": 2},
}


def texts(count: int, seed: int = 0) -> list[str]:
    """Return texts of 1 to 20 letters with spaces between them."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(LETTERS, k=rng.randint(1, 20))) for _ in range(count)]


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write JSON lines or, by the suffix, tabs with a header."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = ["\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path


def labelled(path: Path, count: int = 40, seed: int = 0) -> Path:
    """Write texts with the label ``yes`` if they begin with a letter up to e, else ``no``."""
    rows = [{"text": t, "label": "yes" if t[0] <= "e" else "no"} for t in texts(count, seed)]
    return write_table(path, rows)


def settings(model: Path | str, train_file: Path, **changes: Any) -> dict[str, Any]:
    """Return the settings of a run that starts from a checkpoint, or from a family's name."""
    start: dict[str, Any] = {"init_from": {"model": str(model)}}
    if isinstance(model, str):
        start = {"family": model, "config": width_of(model)}
    tables = {"task": "text-classification", "data": {"train": [str(train_file)]}}
    return deep_merge(start, SETTINGS, tables, changes)


def finetune(path: Path, tree: Mapping[str, Any]) -> Path:
    """Train a run, and return its directory."""
    FineTuneRun(tree, DistContext.initialize("cpu"), path).start()
    return path


def setup_of(run: Path) -> FineTuneSetup:
    """Return the setup of a finished run."""
    values = yaml.safe_load((run / "config.yaml").read_text())
    return finetune_setup(validate_config(values, FineTuneConfig))


def training_losses(run: Path) -> list[float]:
    return [record["loss"] for record in records(run)]


def adamw(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """Return torch's AdamW without weight decay."""
    return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)


def reference_losses(
    run: Path,
    model: nn.Module,
    batch_loss: Callable[[Batch], tuple[Tensor, float]],
    make_optimizer: Callable[[nn.Module, float], torch.optim.Optimizer] = adamw,
) -> list[float]:
    """Train a model with torch's optimizer on the batches of a run; return the loss of each step.

    Args:
        run: a finished run.
        model: the reference, with the weights that the run started from.
        batch_loss: returns the sum of the losses in a micro-batch, and what the sum of a step is
            divided by.
        make_optimizer: returns the optimizer of a model with a learning rate.
    """
    setup = setup_of(run)
    config, loader, losses = setup.config, setup.train_dataloader(HERE), []
    rate = config.optimizer.learning_rate
    optimizer = make_optimizer(model, rate)
    for step in range(config.max_steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * lr_multiplier(config.lr_scheduler, step, config.max_steps)
        parts = [batch_loss(batch) for batch in loader.make_batches(step)]
        loss = torch.stack([total for total, _ in parts]).sum() / sum(count for _, count in parts)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    loader.close()
    return losses


def assert_resumes_exactly(folder: Path, tree: Mapping[str, Any], step: int) -> Path:
    """Train a run, and resume a copy from a checkpoint; return the whole run."""
    whole = finetune(folder / "whole", tree)
    assert_resumes_from(whole, folder, step, kind=FineTuneRun)
    return whole


def assert_two_processes_equal_one(folder: Path, tree: Mapping[str, Any]) -> None:
    """Train a run with one process and with two, and compare their losses and metrics."""
    folder.mkdir(exist_ok=True)
    file, single, parallel = folder / "run.yaml", folder / "single", folder / "parallel"
    file.write_text(yaml.safe_dump(tree))
    finetune(single, tree)
    finish_in_two_processes("finetune", str(file), "-o", str(parallel))
    for split in ("train", "validation"):
        for record, other in zip(records(parallel, split), records(single, split), strict=True):
            assert record["loss"] == pytest.approx(other["loss"], abs=1e-5)
            metrics = pytest.approx(other["metrics"], rel=1e-5, abs=1e-5)
            assert record["metrics"] == metrics


def refused(tmp_path: Path, tree: dict[str, Any], match: str, kind: Any = UsageError) -> None:
    with pytest.raises(kind, match=match):
        finetune(tmp_path / "run", tree)
    assert not (tmp_path / "run").exists()


def losses_of_transformers(
    run: Path, source: Path, architecture: str = "BertForSequenceClassification"
) -> list[float]:
    """Train transformers' model on the batches of a run."""
    model: Any = getattr(transformers, architecture).from_pretrained(source)

    def batch_loss(batch: Batch) -> tuple[Tensor, int]:
        return model(**batch.tensors).loss * batch.rows, batch.rows

    return reference_losses(run, model, batch_loss)
