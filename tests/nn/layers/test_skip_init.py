"""Tests of modules that are built without initializing parameters that are replaced."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.families.every import every_family
from zoo.nn.layers.init import init_function, init_weights
from zoo.nn.layers.skip_init import PartlyInitialized, build_without_init
from zoo.plugins import get_family

INITIALIZED: list[tuple[int, ...]] = []  # shapes of the tensors of calls of ``draw_``


@init_function
def draw_(tensor: Tensor) -> Tensor:
    """Draw normal numbers, and record the call."""
    INITIALIZED.append(tuple(tensor.shape))
    return nn.init.normal_(tensor)


class Layers(nn.Module):
    """Three linear maps, the second frozen, and what ``further`` adds."""

    def __init__(self, further: Callable[[Any], None] = lambda layers: None) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 2)
        self.second.requires_grad_(False)
        for layer in (self.first, self.second, self.head):
            draw_(layer.weight)
        further(self)


def build(**options: Any) -> tuple[PartlyInitialized, list[tuple[int, ...]]]:
    """Return the module without values of all but the head, and the shapes that were drawn."""

    def replaced(module: Any) -> Iterable[Tensor]:
        return [*module.first.parameters(), *module.second.parameters()]

    INITIALIZED.clear()
    torch.manual_seed(3)
    return build_without_init(lambda: Layers(**options), replaced), INITIALIZED


def test_the_needed_parameters_alone_are_initialized() -> None:
    built, drawn = build()
    module: Any = built.module
    assert drawn == [(2, 6)]
    torch.manual_seed(3)
    alone = nn.Linear(6, 2)  # draws a bias, too
    nn.init.normal_(alone.weight)
    assert torch.equal(module.head.weight, alone.weight)
    assert torch.equal(module.head.bias, alone.bias)
    assert [p.requires_grad for p in module.second.parameters()] == [False, False]
    assert len(built.skipped) == 4


def test_nothing_is_skipped_where_nothing_is_replaced() -> None:
    torch.manual_seed(3)
    plain = Layers()
    torch.manual_seed(3)
    built = build_without_init(Layers, lambda module: [])
    assert not built.skipped
    for name, value in built.module.state_dict().items():
        assert torch.equal(value, plain.state_dict()[name]), name


def test_values_that_others_are_computed_of_are_initialized() -> None:
    """A new parameter begins as a copy of one that is replaced: both have their initial values."""

    def copy(layers: Any) -> None:
        layers.copied = nn.Parameter(layers.first.weight.detach().clone())

    built, drawn = build(further=copy)
    module: Any = built.module
    assert (5, 4) in drawn and (6, 5) not in drawn
    assert torch.equal(module.copied, module.first.weight)
    assert 0.3 < float(module.copied.detach().std()) < 3


def test_a_parameter_that_is_dropped_for_a_tied_one_is_not_initialized() -> None:
    def tie(layers: Any) -> None:
        dropped = nn.Linear(5, 6)
        draw_(dropped.weight)
        dropped.weight = layers.second.weight
        layers.tied = dropped

    built, drawn = build(further=tie)
    assert drawn == [(2, 6)]
    assert len(built.skipped) == 4  # of which the dropped weight is none


def test_parameters_that_stay_without_values_are_an_error() -> None:
    built, _ = build()
    module: Any = built.module
    with torch.no_grad():
        for layer in (module.first, module.second):
            with pytest.raises(RuntimeError, match="neither initialized nor loaded"):
                built.require_values()
            layer.weight.zero_()
            layer.bias.zero_()
    built.require_values()


@pytest.mark.by_default("t5")
@pytest.mark.parametrize("family", every_family())
def test_no_family_initializes_what_is_replaced(family: str) -> None:
    """But for constants, and parameters of the head."""
    plugin = get_family(family)
    for head in plugin.heads():
        built = build_without_init(
            partial(plugin.model, plugin.sizes()["tiny"], head),
            lambda model: [p for n, p in model.named_parameters() if not n.startswith("head.")],
        )
        skipped = {id(parameter) for parameter, _ in built.skipped}
        for name, parameter in built.module.named_parameters():
            drawn = not name.startswith("head.") and len(torch.unique(parameter)) > 2
            assert not drawn or id(parameter) in skipped, f"{head}: {name}"


def test_a_truncated_draw_is_skipped_as_a_whole() -> None:
    """It draws until all numbers are inside, and so reads the parameter."""

    def initialize(layers: Any) -> None:
        init_weights(layers, std=0.02)

    built, _ = build(further=initialize)
    module: Any = built.module
    assert len(built.skipped) == 4
    assert 0 < float(module.head.weight.detach().abs().max()) < 0.04
