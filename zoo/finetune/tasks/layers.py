"""The layers that a classifier reads."""

from typing import Any, Literal

from zoo.training.config.finetune import FineTuneConfig

Layers = Literal["mix"]
MIX = "mix"  # value of the option, and field of the configurations


def layer_changes(run: FineTuneConfig) -> dict[str, Any]:
    """Return the field of the configuration that the option ``layers`` of a task sets."""
    return {MIX: True} if run.task_args.get("layers") == MIX else {}
