"""A run that is over in seconds, to see that a family can be taught."""

import json
from pathlib import Path
from typing import Any

import msgspec

from zoo.family import Family

SETTINGS = {"vocab_size": 400, "batch_tokens": 512, "steps": 20, "log_every": 1}
LENGTH = 64


def losses(family: Family, config: Any, path: Path) -> list[float]:
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
    from zoo.training.ranks import Ranks
    from zoo.training.start import begin

    usual = msgspec.to_builtins(family.sizes()["tiny"])
    changed = {k: v for k, v in msgspec.to_builtins(config).items() if v != usual[k]}
    changed.pop("vocab_size", None)
    length = min(LENGTH, family.longest(config) or LENGTH)
    settings = {"family": family.name, "length": length, "config": changed, **SETTINGS}
    begin(settings, {}, path, Ranks.join("cpu"))
    log = (path / "log.jsonl").read_text("utf-8").splitlines()
    return [record["loss"] for record in map(json.loads, log) if record["split"] == "train"]
