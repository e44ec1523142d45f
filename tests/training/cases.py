"""All pairs of a family and a supported objective."""

from collections.abc import Iterator

from zoo.errors import UsageError
from zoo.objectives import OBJECTIVES, objective_type
from zoo.plugins import get_family, installed
from zoo.training.config.schema import TrainConfig


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


def dry(config: TrainConfig) -> TrainConfig:
    """Return settings without dropout, for all dropout keys of the family."""
    from msgspec.structs import replace

    fields = get_family(config.family).sizes()[config.size].__struct_fields__
    off = {name: 0.0 for name in fields if name.endswith("dropout")}
    return replace(config, config={**config.config, **off})
