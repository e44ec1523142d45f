"""Names of the modules that an adapter changes, in ``adapter_config.json`` of peft."""

from collections.abc import Sequence

from zoo.adapted_models.targets import WEIGHT, AdaptableModel, matches
from zoo.weights import Transpose, WeightMap


def part_names(adaptable: AdaptableModel, targets: Sequence[str]) -> set[str]:
    """Return the names of the Hub's modules that targets mean."""
    names = set[str]()
    for site in adaptable.find_sites(targets):
        names.update(part.name for part in site.parts.values())
    return names


def exact_targets(
    targets: Sequence[str], inputs: Sequence[str], adaptable: AdaptableModel
) -> tuple[list[str], list[str]]:
    """Return names that mean the same modules in peft: targets, and those of scaled inputs.

    peft also looks for targets in the head, compares names of scaled inputs without the point
    before them, and requires that these names are among the targets. Where a short name would mean
    another module there, all names are full.
    """
    weights = adaptable.family.weights(adaptable.config, adaptable.head)
    adapted_modules = part_names(adaptable, targets)
    scaled_modules = part_names(adaptable, inputs)
    targets_in_peft = set()
    for module in module_names(weights):
        if matches_any(module, targets):
            targets_in_peft.add(module)
    inputs_in_peft = {name for name in adapted_modules if name.endswith(tuple(inputs))}
    has_same_modules = targets_in_peft == adapted_modules and inputs_in_peft == scaled_modules
    if has_same_modules and set(inputs) <= set(targets):
        return [weights.written(name) for name in targets], [weights.written(n) for n in inputs]
    full_targets = sorted(weights.written(name) for name in adapted_modules)
    full_inputs = sorted(weights.written(name) for name in scaled_modules)
    return full_targets, full_inputs


def module_names(weights: WeightMap) -> set[str]:
    """Return the names of the Hub's modules that have a weight."""
    names = set()
    for entry in weights.entries():
        for source in entry.sources:
            if source.endswith(WEIGHT):
                names.add(source.removesuffix(WEIGHT))
    return names


def matches_any(name: str, targets: Sequence[str]) -> bool:
    """Return whether one of several targets means a module."""
    return any(matches(name, target) for target in targets)


def is_transposed(targets: Sequence[str], adaptable: AdaptableModel) -> bool:
    """Return whether the Hub's matrices are (in, out)."""
    for site in adaptable.sites:
        if not isinstance(site.entry.op, Transpose):
            continue
        for part in site.parts.values():
            if matches_any(part.name, targets):
                return True
    return False
