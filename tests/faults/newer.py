"""Inputs of the verbs that fine-tune, distil, evaluate, quantize and upload, made once."""

import json
import shutil
from pathlib import Path

import yaml

from tests import warm
from tests.finetuning.making import labelled
from tests.once import written_once

TASK = ("--task", "text-classification")
FEW = ("--max-steps", "2", "--device", "cpu", "--offline", "--set", "micro_batch_size=8")
TINY = {"num_layers": 1, "hidden_size": 32, "num_heads": 4, "intermediate_size": 32}


def newer_inputs(folder: Path) -> Path:
    """Return a copy of a table, a classifier, its upload and settings of distillation."""
    shutil.copytree(written_once("newer-verbs", _write), folder)
    tree = {
        "task": "text-classification",
        "preset": "default",
        "data": {"train": [str(folder / "table.jsonl")]},
        "student": {"name": "bert"},
        "config": TINY,
        "distillation": {"teachers": [str(folder / "model")], "recipe": "logits"},
    }
    (folder / "distill.yaml").write_text(yaml.safe_dump(tree))
    return folder


def _write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    labelled(folder / "table.jsonl")
    rows = (folder / "table.jsonl").read_text().splitlines()
    (folder / "texts.txt").write_text("\n\n".join(json.loads(row)["text"] for row in rows * 3))
    done = warm.zoo(*finetune(folder), "-o", folder / "run")
    assert done.returncode == 0, done.stderr
    shutil.move(folder / "run" / "model", folder / "model")
    shutil.rmtree(folder / "run")
    done = warm.zoo("convert", folder / "model", "--to", "hub", "-o", folder / "hub")
    assert done.returncode == 0, done.stderr


def finetune(folder: Path) -> list[object]:
    config = [word for name, size in TINY.items() for word in ("--set", f"config.{name}={size}")]
    table = folder / "table.jsonl"
    return ["finetune", "bert", *TASK, "--train", table, "--set", "vocab_size=300", *FEW, *config]


def distill(folder: Path, cache: Path | None = None) -> list[object]:
    cached = [] if cache is None else ["--cache-teacher", cache]
    return ["distill", folder / "distill.yaml", *cached, *FEW]


def evaluate(folder: Path, *options: str) -> list[object]:
    return ["eval", folder / "model", *TASK, "--eval", folder / "table.jsonl", *options]


def export(folder: Path) -> list[object]:
    texts = ["--eval", folder / "texts.txt"]
    return ["export", folder / "model", "--onnx", "--int8", *texts, "--max-drop", "1"]


def push(folder: Path) -> list[object]:
    return ["push", folder / "hub", "someone/model"]


def pretrain(folder: Path) -> list[object]:
    return ["pretrain", "gpt", "--train", folder / "texts.txt", "--set", "size=tiny", *_STEP]


_STEP = (
    *("--max-steps", "1", "--device", "cpu", "--offline", "--set", "seq_len=16"),
    *("--set", "global_batch_tokens=64", "--set", "micro_batch_tokens=64"),
    *("--set", "vocab_size=300", "--set", "eval_sequences=1"),
)
