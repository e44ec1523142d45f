"""Comparison of weight rules with the model whose tensors they fill."""

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.families.base import Family


def differing_tensors(family: "Family", config: Any, head: str) -> list[str]:
    """Return the names of tensors whose shapes in rules and model differ, or that one lacks."""
    # The model is built without memory for its weights
    from zoo.nn.layers.skip_init import init_empty_weights

    with init_empty_weights():
        state_dict = family.model(config, head).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state_dict.items()}
    ruled = {mapping.target: mapping.shape for mapping in family.weights(config, head).entries()}
    return sorted(name for name in {*ruled, *shapes} if ruled.get(name) != shapes.get(name))


def repeated_targets(family: "Family", config: Any, head: str) -> list[str]:
    """Return the names of the tensors that several rules fill."""
    targets = Counter(mapping.target for mapping in family.weights(config, head).entries())
    return [name for name, count in targets.items() if count > 1]


def check_rules_of_plugin(family: "Family", config: Any, head: str) -> None:
    """Check that the rules of a third party's family fill exactly its model."""
    # Otherwise the files that a conversion writes could not be loaded. The tests check it for
    # built-in families.
    from zoo.plugins.attribution import third_party
    from zoo.plugins.loading import broken

    plugin = third_party(family)
    if plugin is None:
        return
    rules = f"the rules of {family.name} with head {head}"
    if repeated := repeated_targets(family, config, head):
        raise broken(plugin, f"two of {rules} fill {repeated[0]}")
    if names := differing_tensors(family, config, head):
        raise broken(plugin, f"{rules} and its model differ in {', '.join(names[:6])}")
