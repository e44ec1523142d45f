"""The layers that a classifier reads: a learned mix of all, or a single one."""

from typing import TYPE_CHECKING, Any, Literal

from zoo.errors import UsageError
from zoo.nn.layers.scalar_mix import ScalarMix
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from torch import nn

# ``mix`` is a learned mix of all layers (Peters et al. 2018, arXiv:1802.05365, equation 1). A
# number selects one layer: 0 for the embeddings, negative numbers from the end. The default is the
# checkpoint's, or else the last layer.
Layers = Literal["mix"] | int
MIX = "mix"  # The field of the configurations: whether a classifier reads a mix.


def layer_changes(settings: FineTuneConfig) -> dict[str, Any]:
    """Return the fields of the model's configuration that the option ``layers`` sets."""
    if settings.task_args.get("layers") is None:
        return {}
    return {MIX: True}


def select_layer(model: "nn.Module", layers: Layers | None) -> None:
    """Give a single layer all the weight of the model's mix; a learned mix stays as it is."""
    if not isinstance(layers, int):
        return
    for module in model.modules():
        if not isinstance(module, ScalarMix):
            continue
        try:
            module.select(layers)
        except IndexError as error:
            raise UsageError(
                f"task_args.layers is {layers}, and the model has {module.layers} layers "
                "with the embeddings",
                f"give one from 0, the embeddings, to {module.layers - 1}, the last",
            ) from error
