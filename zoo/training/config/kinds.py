"""The configurations of all kinds of runs."""

from typing import TypeAlias

from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.schema import TrainConfig

RunConfig: TypeAlias = TrainConfig | FineTuneConfig

# command of a run -> type of its configuration
CONFIG_TYPES: dict[str, type[RunConfig]] = {"pretrain": TrainConfig, "finetune": FineTuneConfig}
