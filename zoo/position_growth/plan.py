"""How a model gets more positions, by what it knows about them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError
from zoo.families.positions import (
    MAX_POSITIONS,
    ROPE_TYPE,
    UNSCALED,
    position_tables,
    rope_types,
)
from zoo.io.limits import MAX_ROW_TOKENS
from zoo.io.sizes import size_problem

RopeScaling = Literal["linear", "dynamic", "yarn"]
PositionInit = Literal["repeat", "interpolate"]

DEFAULT_SCALING: RopeScaling = "yarn"
DEFAULT_INIT: PositionInit = "repeat"
# Methods after which rows of up to the old length have the results that they had.
UNCHANGED = ("repeat", "dynamic")


@dataclass(frozen=True)
class GrowthPlan:
    """How a model gets more positions.

    Attributes:
        old_max_seq_len: number of tokens that it reads.
        max_seq_len: number of tokens that it will read.
        method: a ``RopeScaling`` or a ``PositionInit``.
        config: the new configuration.
        tables: see ``zoo.families.positions.position_tables``.
    """

    old_max_seq_len: int
    max_seq_len: int
    method: str
    config: Any
    tables: Mapping[str, int] = field(default_factory=dict)

    def new_parameters(self, checkpoint: Checkpoint) -> int:
        """Return the number of parameters that the model gets."""
        count = 0
        for entry in checkpoint.weights.entries():
            if entry.target in self.tables:
                count += (self.max_seq_len - self.old_max_seq_len) * math.prod(entry.shape[1:])
        return count


def plan_growth(
    checkpoint: Checkpoint,
    max_seq_len: int,
    *,
    name: str,
    rope_scaling: RopeScaling | None = None,
    position_init: PositionInit | None = None,
) -> GrowthPlan:
    """Return how a model gets more positions.

    Args:
        checkpoint: the model.
        max_seq_len: number of tokens that it will read.
        name: name of the model in messages.
        rope_scaling: scaling of rotary frequencies; by default ``yarn``.
        position_init: values of new rows of a table of positions; by default ``repeat``.

    Raises:
        UsageError: it has no positions that grow, it reads as many tokens already, or an option is
            for positions of the other kind.
    """
    family = checkpoint.family
    config = checkpoint.config
    limit = family.max_seq_len(config)
    if limit is None:
        raise UsageError(
            f"{name} reads texts of any length: its positions are relative",
            "leave --max-seq-len out",
        )
    tables = position_tables(family, config, checkpoint.head_name)
    scalings = [item for item in rope_types(config) if item != UNSCALED]
    if not tables and not scalings:
        raise UsageError(
            f"the positions of {family.title(config)} do not grow: it has no table of learned "
            "positions, and no scaling of rotary frequencies",
            "leave --max-seq-len out",
        )
    problem = size_problem("--max-seq-len", max_seq_len, MAX_ROW_TOKENS)
    if problem is not None:
        raise UsageError(problem, f"give a number of tokens above {limit}")
    if max_seq_len <= limit:
        raise UsageError(
            f"--max-seq-len is {max_seq_len}, and {name} reads {limit} tokens already",
            f"give more than {limit}; --max-seq-len of `zoo run` cuts texts at fewer tokens",
        )
    if tables:
        if rope_scaling is not None:
            raise UsageError(
                f"--rope-scaling is for rotary positions, and those of {name} are learned",
                "leave it out, or give --position-init",
            )
        positions = getattr(config, MAX_POSITIONS) + max_seq_len - limit
        larger_config = msgspec.structs.replace(config, **{MAX_POSITIONS: positions})
        init = position_init or DEFAULT_INIT
        return GrowthPlan(limit, max_seq_len, init, larger_config, tables)
    if position_init is not None:
        raise UsageError(
            f"--position-init is for learned positions, and those of {name} are rotary",
            "leave it out, or give --rope-scaling",
        )
    scaling = rope_scaling or DEFAULT_SCALING
    if scaling not in scalings:
        raise UsageError(
            f"{family.title(config)} has no rotary scaling {scaling}",
            f"give one of {', '.join(item for item in scalings if item != 'llama3')}",
        )
    current = getattr(config, ROPE_TYPE)
    if current != UNSCALED:
        raise UsageError(
            f"the rotary frequencies of {name} are scaled already: rope_type {current}",
            "grow the model from before they were",
        )
    scaled_config = msgspec.structs.replace(config, **_rope_fields(scaling, limit, max_seq_len))
    return GrowthPlan(limit, max_seq_len, scaling, scaled_config)


def _rope_fields(method: str, limit: int, max_seq_len: int) -> dict[str, Any]:
    """Return the fields of scaled rotary frequencies, with the meaning of transformers' keys."""
    fields: dict[str, Any] = {ROPE_TYPE: method, "rope_factor": max_seq_len / limit}
    # In transformers, the number of positions of dynamic scaling is the one of training.
    fields[MAX_POSITIONS] = limit if method == "dynamic" else max_seq_len
    if method == "yarn":
        fields["rope_original_max_positions"] = limit
    return fields
