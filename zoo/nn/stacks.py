"""The stacks of layers in a model: depth, shared layers, and what lies below the first layer."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import nn

from zoo.nn.layers.scalar_mix import ScalarMix

EMBEDDINGS = "embeddings"


class Stack(NamedTuple):
    """A stack of layers: an ``nn.ModuleList`` with the name ``layers``, anywhere in a model."""

    owner: str  # Prefix of the names in the module that has the layers, such as ``decoder.``.
    # Index in the list of the layer at each depth. Several depths may share a layer.
    order: tuple[int, ...]
    # Names of the modules that all layers read, in addition to embeddings: the owner's
    # ``layer_inputs``.
    layer_inputs: tuple[str, ...]

    def at(self, depths: slice) -> list[str]:
        """Return the names of the layers at some depths."""
        return [f"{self.owner}layers.{index}" for index in dict.fromkeys(self.order[depths])]

    def can_split_at(self, depth: int) -> bool:
        """Return whether no layer below a depth is shared with one at the depth or above."""
        return set(self.order[:depth]).isdisjoint(self.order[depth:])


def stacks(model: nn.Module) -> Iterator[Stack]:
    """Yield the stacks of a model. A mix of all layers, ``ScalarMix``, is not a layer."""
    for name, module in model.named_modules():
        layers = getattr(module, "layers", None)
        if not isinstance(layers, nn.ModuleList):
            continue
        depth = sum(not isinstance(layer, ScalarMix) for layer in layers)
        order = tuple(getattr(module, "order", range(depth)))
        yield Stack(f"{name}." if name else "", order, tuple(getattr(module, "layer_inputs", ())))


def modules_below_layers(model: nn.Module) -> dict[str, Stack | None]:
    """Return the modules below the first layers: embeddings, and what all layers read."""
    owners = {stack.owner: stack for stack in stacks(model)}
    modules: dict[str, Stack | None] = {}
    for name, _ in model.named_modules():
        if name.split(".")[-1] == EMBEDDINGS:
            modules[name] = owners.get(name[: -len(EMBEDDINGS)])
    for owner, stack in owners.items():
        for name in stack.layer_inputs:
            modules[f"{owner}{name}"] = stack
    return modules
