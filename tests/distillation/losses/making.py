"""A teacher of sentence embeddings, and the divergence worked by hand."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.distillation.making import narrow
from tests.finetuning.making import SETTINGS, finetune, texts, write_table
from tests.finetuning.making import settings as finetune_settings
from tests.once import written_once
from zoo.training.config.overrides import deep_merge

POOLING = {"pooling": "cls", "normalize": True}


@pytest.fixture(scope="module")
def teacher() -> Path:
    def write(folder: Path) -> None:
        rows = [{"text": a, "pair": b} for a, b in zip(texts(40), texts(40, 1), strict=True)]
        tree = finetune_settings(
            "bert",
            write_table(folder / "pairs.jsonl", rows),
            task="sentence-embedding",
            task_args=POOLING,
            data={"pair": "pair"},
            config={"num_layers": 4},
            max_steps=4,
            max_seq_len=24,
        )
        finetune(folder / "run", tree)

    return written_once("embedding-teacher", write) / "run/model"


@pytest.fixture
def tree(teacher: Path, tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "sentences.txt"
    file.write_text("\n".join(texts(60, 2)) + "\n\n")
    values = {
        "distillation": {"teachers": [str(teacher)], "recipe": "embeddings"},
        "student": narrow("bert"),
        "data": {"paths": [str(file)]},
        "save_total_limit": 9,
    }
    return deep_merge(SETTINGS, values, {"optimizer": {"learning_rate": 3e-3}})


DOUBLE = torch.float64


def kl_by_hand(student: Tensor, teacher: Tensor, temperature: float) -> float:
    total = 0.0
    for mine, other in zip(student.tolist(), teacher.tolist(), strict=True):
        p = [math.exp(z / temperature) for z in other]
        q = [math.exp(z / temperature) for z in mine]
        for a, b in zip(p, q, strict=True):
            total += a / sum(p) * math.log((a / sum(p)) / (b / sum(q)))
    return total
