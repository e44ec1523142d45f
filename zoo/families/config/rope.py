"""The fields of configurations whose rotary frequencies may be scaled, and their Hub keys."""

from typing import Any, Literal, get_args

from zoo.families.config.transformer import TransformerConfig

RopeType = Literal["default", "linear", "dynamic", "yarn"]

GROUP = "rope_parameters"
OLD_GROUP = "rope_scaling"  # Of versions of transformers before 5.
# Keys of a scaled rotation -> fields.
SCALING_KEYS = {
    "factor": "rope_factor",
    "original_max_position_embeddings": "rope_original_max_positions",
    "beta_fast": "rope_beta_fast",
    "beta_slow": "rope_beta_slow",
    "attention_factor": "rope_attention_factor",
}
# Settings of ``yarn`` that no family computes -> the values that change nothing.
_NOT_COMPUTED: dict[str, tuple[Any, ...]] = {
    "mscale": (None,),
    "mscale_all_dim": (None,),
    "truncate": (None, True),
}
# Older keys -> those of later versions.
OLD_ROPE_KEYS = {f"{OLD_GROUP}.type": f"{GROUP}.rope_type"}
for _key in ("rope_type", *SCALING_KEYS):
    OLD_ROPE_KEYS[f"{OLD_GROUP}.{_key}"] = f"{GROUP}.{_key}"


def rope_keys(group: str = GROUP) -> dict[str, str]:
    """Return the Hub keys of ``RopeConfig``'s fields, in a group of keys."""
    keys = {f"{group}.rope_type": "rope_type"}
    for key, name in SCALING_KEYS.items():
        keys[f"{group}.{key}"] = name
    return keys


def unsaid_rope_keys(group: str = GROUP) -> tuple[str, ...]:
    """Return the keys that are written only if they are set."""
    return tuple(f"{group}.{key}" for key in SCALING_KEYS)


def rope_values(group: str = GROUP) -> dict[str, dict[Any, Any]]:
    """Return the accepted values of the type."""
    return {f"{group}.rope_type": {name: name for name in get_args(RopeType)}}


def refused_rope_keys(*groups: str) -> dict[str, tuple[Any, ...]]:
    """Return the keys that no family computes -> the values that change nothing."""
    refused_keys = {}
    for group in groups:
        for key, values in _NOT_COMPUTED.items():
            refused_keys[f"{group}.{key}"] = values
    return refused_keys


def scaling_problem(config: "ScaledRotation", reader: str) -> str | None:
    """Return why a Hub layout without keys of scaled frequencies cannot hold a model, or ``None``.

    Args:
        config: the configuration.
        reader: what reads the layout.
    """
    if config.rope_type == "default":
        return None
    return f"{reader} computes no rotary frequencies with the rope_type {config.rope_type}"


class ScaledRotation:
    """What follows from the fields of ``RopeConfig``, for each struct that has them."""

    __slots__ = ()

    # Structs with fields cannot be joined, so that each base class of configurations has its own.
    rope_type: RopeType
    rope_factor: float | None
    max_positions: int

    @property
    def is_rotary(self) -> bool:
        """Whether positions are rotations; a family may have models with other positions."""
        return True

    @property
    def max_seq_len(self) -> int:
        """Largest number of tokens in a row; dynamic scaling has the positions of training."""
        if self.rope_type == "dynamic" and self.rope_factor is not None:
            return round(self.max_positions * self.rope_factor)
        return self.max_positions

    def check_rope_fields(self) -> None:
        """Check that a scaling has a factor, and frequencies to scale."""
        if self.rope_type == "default":
            return
        if self.rope_factor is None:
            raise ValueError(f"the rope_type {self.rope_type} needs a rope_factor")
        if not self.is_rotary:
            raise ValueError(f"rope_type is {self.rope_type}, and positions are not rotations")


class RopeConfig(
    ScaledRotation, TransformerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The fields of a family whose rotary frequencies may be scaled; it has their base as well."""

    rope_type: RopeType = "default"  # scaling of the frequencies, see ``zoo.nn.positions``
    # by how much positions are stretched; required unless ``rope_type`` is ``default``
    rope_factor: float | None = None
    # of ``yarn``: number of positions before they were stretched; ``None`` for ``max_positions``
    rope_original_max_positions: int | None = None
    rope_beta_fast: float | None = None  # Fast turns of ``yarn``; ``None`` for 32.
    rope_beta_slow: float | None = None  # Slow turns of ``yarn``; ``None`` for 1.
    # of ``yarn``: factor of cosines and sines; ``None`` for the paper's
    rope_attention_factor: float | None = None

    def __post_init__(self) -> None:
        """Check that a scaling has a factor."""
        super().__post_init__()
        self.check_rope_fields()
