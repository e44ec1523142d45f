"""Teachers and runs of distillation that take about a second."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.once import written_once
from tests.training.runs import SMALL, assert_resumes_from, run_training
from zoo.distillation.runs import DistillRun
from zoo.distillation.setup import DistillSetup, distill_setup
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext

DISTILL_SMALL = {name: value for name, value in SMALL.items() if name != "vocab_size"}


@functools.cache
def pretrained(family: str, **changes: Any) -> Path:
    """Return the model of a pretraining run of a few steps."""
    config = {"num_layers": 2} if family != "elmo" else {}
    few = {"config": config, "max_steps": 4, **changes}
    name = "-".join(["teacher", family, *(f"{key}-{value}" for key, value in changes.items())])
    return written_once(name, lambda path: run_training(path / "run", family, **few)) / "run/model"


def settings(teacher: Path | str, student: str, /, **changes: Any) -> dict[str, Any]:
    """Return the settings of a run on text."""
    tree = {"distillation": {"teachers": [str(teacher)]}, "student": {"name": student}}
    return deep_merge(tree, DISTILL_SMALL, changes)


def distill(path: Path, tree: Mapping[str, Any]) -> Path:
    """Train a run, and return its directory."""
    DistillRun(tree, DistContext.initialize("cpu"), path).start()
    return path


def make_setup(tree: Mapping[str, Any]) -> DistillSetup:
    """Return the setup of settings."""
    return distill_setup(DistillRun.build_config(tree, {}))


def assert_resumes_exactly(folder: Path, tree: Mapping[str, Any], step: int) -> Path:
    """Train a run, and resume a copy from a checkpoint; return the whole run."""
    whole = distill(folder / "whole", tree)
    assert_resumes_from(whole, folder, step, kind=DistillRun)
    return whole
