"""A run that is over in seconds, to see that a family can be taught."""

import json
from pathlib import Path
from typing import Any

import msgspec

from zoo.families.base import Family

SETTINGS = {"vocab_size": 400, "global_batch_tokens": 512, "max_steps": 20, "logging_steps": 1}
LENGTH = 64


def smoke_train(family: Family, config: Any, path: Path) -> list[float]:
    """Pretrain a model by the recipe of the size ``tiny``, on the texts of the package.

    Args:
        family: the family, of a plugin that is installed.
        config: the model's, but for its vocabulary; what differs from ``tiny`` is set.
        path: where the run is written.

    Returns:
        the loss of each step.

    Raises:
        UsageError: the family has no recipe.
    """
    from zoo.training.distributed.context import DistContext
    from zoo.training.entrypoints import train

    usual = msgspec.to_builtins(family.sizes()["tiny"])
    changed = {k: v for k, v in msgspec.to_builtins(config).items() if v != usual[k]}
    changed.pop("vocab_size", None)
    length = min(LENGTH, family.max_seq_len(config) or LENGTH)
    settings = {"family": family.name, "seq_len": length, "config": changed, **SETTINGS}
    train(settings, {}, path, DistContext.initialize("cpu"))
    log = (path / "metrics.jsonl").read_text("utf-8").splitlines()
    return [record["loss"] for record in map(json.loads, log) if record["split"] == "train"]
