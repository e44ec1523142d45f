"""What a model knows about positions: learned tables, scaled rotations, or neither."""

import typing

import msgspec

from zoo.families.base import Family
from zoo.families.config import Config

MAX_POSITIONS = "max_positions"
ROPE_TYPE = "rope_type"
UNSCALED = "default"  # The ``rope_type`` of frequencies that are not scaled.
DYNAMIC = "dynamic"  # The ``rope_type`` of frequencies that depend on the longest row of a batch.


def position_tables(family: Family, config: Config, head: str) -> dict[str, int]:
    """Return the tables of learned positions of a model, by the shapes of its weights.

    Returns:
        name of a table, (rows, width) -> number of its rows before the position of a text's first
        token. Tensors whose shape depends on the number of positions in another way, such as
        embeddings of distances, are not tables of positions; a model with one has no tables.
    """
    positions = getattr(config, MAX_POSITIONS, None)
    limit = family.max_seq_len(config)
    if positions is None or limit is None:
        return {}
    larger_config = msgspec.structs.replace(config, **{MAX_POSITIONS: positions + 1})
    larger_shapes = {}
    for entry in family.weights(larger_config, head).entries():
        larger_shapes[entry.target] = entry.shape
    tables = {}
    for entry in family.weights(config, head).entries():
        larger_shape = larger_shapes[entry.target]
        if larger_shape == entry.shape:
            continue
        rows, *row_shape = entry.shape
        if larger_shape != (rows + 1, *row_shape):
            return {}
        tables[entry.target] = rows - limit
    return tables


def rope_types(config: Config) -> tuple[str, ...]:
    """Return the scalings of rotary frequencies that a family computes, by their ``rope_type``."""
    if ROPE_TYPE not in config.__struct_fields__ or not getattr(config, "is_rotary", True):
        return ()
    hints = typing.get_type_hints(type(config))
    return typing.get_args(hints[ROPE_TYPE])


def changes_with_length(config: Config) -> bool:
    """Return whether the rotation of a token depends on the length of its row."""
    return getattr(config, ROPE_TYPE, UNSCALED) == DYNAMIC
