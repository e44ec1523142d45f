"""Stages of a run that differ in the configuration of the model: a function of the step."""

from typing import Any

import msgspec

from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.recipe import SeqLenWarmup
from zoo.overrides import override
from zoo.training.trainer import Callback, Trainer


class StageCallback(Callback):
    """Lets a model compute by the configuration of the stage that a step belongs to."""

    def __init__(
        self, family: Family, first_config: Any, later_config: Any, first_steps: int
    ) -> None:
        self.family = family
        self.first_config = first_config
        self.later_config = later_config
        self.first_steps = first_steps
        self._current_config: Any = None

    @override
    def on_step_begin(self, trainer: Trainer) -> None:
        config = self.later_config
        if trainer.step < self.first_steps:
            config = self.first_config
        if config is not self._current_config:
            self.family.reconfigure(trainer.model, config)
            self._current_config = config


def first_stage(family: Family, config: Any, warmup: SeqLenWarmup | None) -> Any:
    """Return the configuration of a warm-up's rows, or ``None`` for the run's own."""
    if warmup is None or not warmup.config:
        return None
    for name in warmup.config:
        if name not in family.fields_by_stage:
            names = ", ".join(family.fields_by_stage) or "none"
            raise UsageError(
                f"seq_len_warmup.config.{name} cannot differ in the first steps of a run",
                f"fields of {family.name} that can: {names}",
            )
    try:
        return msgspec.convert(msgspec.to_builtins(config) | warmup.config, type(config))
    except msgspec.ValidationError as error:
        raise UsageError(f"seq_len_warmup.config: {error}", "correct the value") from error
