"""A prompt is read by the model of each kind of task, which not all call by ``forward``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.adapters.conftest import QUICK
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, settings, texts, write_table
from zoo.training.state.checkpoints import list_checkpoints


def words(folder: Path) -> dict[str, Any]:
    sentences = [[f"{w}\t{'B-x' if w < 'e' else 'O'}" for w in t.split()] for t in texts(24)]
    file = folder / "t.conll"
    file.write_text("\n\n".join("\n".join(lines) for lines in sentences) + "\n")
    return {"train": [str(file)]}


def pairs(folder: Path) -> dict[str, Any]:
    both = zip(texts(24), texts(24, seed=1), strict=True)
    rows = [{"text": one, "pair": two, "label": float(one[0] == two[0])} for one, two in both]
    return {"train": [str(write_table(folder / "t.tsv", rows))], "pair": "pair"}


def choices(folder: Path) -> dict[str, Any]:
    rows = [
        {"context": t, "choices": ["a b", "c"], "label": k % 2} for k, t in enumerate(texts(24))
    ]
    return {"train": [str(write_table(folder / "t.jsonl", rows))]}


TABLES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "token-classification": words,
    "sentence-embedding": pairs,
    "multiple-choice": choices,
}


@pytest.mark.parametrize("task", TABLES)
def test_the_prompt_is_trained(task: str, pretrained: Pretrained, tmp_path: Path) -> None:
    steps = {**QUICK, "save_total_limit": 9, "optimizer": {"learning_rate": 0.05}}
    adapter = {"method": "prompt", "num_virtual_tokens": 3}
    tree = settings(pretrained()[0], Path("unused"), adapter=adapter, **steps)
    run = finetune(tmp_path / "run", {**tree, "task": task, "data": TABLES[task](tmp_path)})
    first = load_file(list_checkpoints(run)[0] / "weights.safetensors")
    (before,) = [tensor for name, tensor in first.items() if name.endswith("adapter.prompt")]
    last = load_file(run / "model" / "adapter.safetensors")["embeddings.tokens.adapter.prompt"]
    assert before.shape == (3, 32) and not torch.equal(before, last)
