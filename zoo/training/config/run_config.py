"""The configurations of all kinds of runs."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from zoo.training.config.distill import DistillTaskConfig, DistillTextConfig
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.schema import TrainConfig

RunConfig: TypeAlias = TrainConfig | FineTuneConfig


def config_type(command: str, values: Mapping[str, Any]) -> type[RunConfig]:
    """Return the type of a run's configuration."""
    if command == "distill":
        return DistillTaskConfig if "task" in values else DistillTextConfig
    return FineTuneConfig if command == "finetune" else TrainConfig
