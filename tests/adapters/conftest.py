"""Tiny checkpoints, and adapters that were trained on them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import hub_checkpoint
from tests.finetuning.conftest import Pretrained, pretrained
from tests.finetuning.making import finetune, labelled, settings

__all__ = ["hub_checkpoint", "pretrained"]
Adapted = Callable[..., tuple[Path, Path]]
QUICK = {"max_steps": 4, "eval_steps": 4, "save_steps": 2}


@pytest.fixture
def adapted(pretrained: Pretrained, tmp_path: Path) -> Adapted:
    """Return a function that trains an adapter; it returns the base and the adapter."""
    models = list[Path]()

    def make(method: str = "lora", name: str = "run", **changes: Any) -> tuple[Path, Path]:
        if not models:
            models.append(pretrained()[0])
        adapter = {"method": method, **changes.pop("adapter", {})}
        table = labelled(tmp_path / "t.tsv")
        rate = {"learning_rate": 0.02}
        tree = settings(
            models[0], table, adapter=adapter, **{**QUICK, "optimizer": rate, **changes}
        )
        return models[0], finetune(tmp_path / name, tree) / "model"

    return make
