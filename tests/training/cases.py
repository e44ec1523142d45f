"""All pairs of a family and a supported objective."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.families.every import representative
from zoo.errors import UsageError
from zoo.objectives import OBJECTIVES, objective_type
from zoo.plugins import get_family, installed
from zoo.training.config.schema import TrainConfig

# corruptions of the same code as span-corruption
VARIANTS = ("bert-style", "deshuffling", "drop-tokens", "mask-tokens", "replace-spans")
# the family that learns an objective by default, where it is the one whose recipe has it
FIRST = {
    "masked-lm+sentence-order": "albert",
    "masked-lm+span-boundary": "roberta",
    "replaced-token-detection": "electra",
    "sentence-permutation": "bart",
}


def cases() -> Iterator[tuple[str, str]]:
    """Yield pairs of a family and a supported objective."""
    for name in installed():
        try:
            family = get_family(name)
        except UsageError:  # a plugin without families
            continue
        for objective in sorted({*OBJECTIVES, *family.objectives}):
            try:
                objective_type(family, family.sizes()["tiny"], objective)
            except UsageError:
                continue
            yield name, objective


def marked_cases() -> Iterator[Any]:
    """Yield the pairs as parameters of a test; ``long`` but for one family of each objective."""
    pairs = sorted(cases())
    learners = dict[str, list[str]]()
    for family, name in pairs:
        learners.setdefault(name, []).append(family)
    for family, name in pairs:
        usual = FIRST.get(name) or representative(learners[name])
        repeated = family != usual or name in VARIANTS
        yield pytest.param(family, name, marks=[pytest.mark.long] if repeated else [])


def dry(config: TrainConfig) -> TrainConfig:
    """Return settings without dropout, for all dropout keys of the family."""
    from msgspec.structs import replace

    fields = get_family(config.family).sizes()[config.size].__struct_fields__
    off = {name: 0.0 for name in fields if name.endswith("dropout")}
    return replace(config, config={**config.config, **off})
