"""The layers that a classifier reads: a learned mix of all, or a single one."""

from typing import TYPE_CHECKING, Any, Literal

from zoo.errors import UsageError
from zoo.finetuning.base import FineTuning
from zoo.nn.layers.scalar_mix import ScalarMix
from zoo.overrides import override
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from torch import nn

Layers = Literal["mix"] | int
MIX = "mix"  # field of the configurations: whether a classifier reads a mix


class LayerTask(FineTuning):
    """Base class of tasks with the option ``layers``."""

    # Its value is ``mix`` for a learned mix of all layers (Peters et al. 2018, arXiv:1802.05365,
    # equation 1), or the number of one layer: 0 for the embeddings, negative from the end. The
    # default is the checkpoint's, or else the last layer.

    @classmethod
    @override
    def config_changes(cls, run: FineTuneConfig) -> dict[str, Any]:
        # whether the model has a scalar mix of its layers
        return {} if run.task_args.get("layers") is None else {MIX: True}

    @override
    def prepare_model(self, model: "nn.Module") -> None:
        # a single layer is a mix in which it has all the weight
        layers: Layers | None = self.options.layers
        if not isinstance(layers, int):
            return
        for module in model.modules():
            if isinstance(module, ScalarMix):
                try:
                    module.select(layers)
                except IndexError as error:
                    raise UsageError(
                        f"task_args.layers is {layers}, and the model has {module.layers} layers "
                        "with the embeddings",
                        f"give one from 0, the embeddings, to {module.layers - 1}, the last",
                    ) from error
