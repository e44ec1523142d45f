"""The fields of configurations whose rotary frequencies may be scaled, and their Hub keys."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from zoo.families.config.transformer import TransformerConfig

RopeType = Literal["default", "linear", "dynamic", "yarn"]

# Keys of a scaled rotation, in the group ``rope_parameters`` -> fields.
SCALING_KEYS: Mapping[str, str] = {
    "factor": "rope_factor",
    "original_max_position_embeddings": "rope_original_max_positions",
    "beta_fast": "rope_beta_fast",
    "beta_slow": "rope_beta_slow",
    "attention_factor": "rope_attention_factor",
}
GROUP = "rope_parameters"
# The same keys with the group, and the type.
ROPE_KEYS: Mapping[str, str] = {
    f"{GROUP}.rope_type": "rope_type",
    **{f"{GROUP}.{key}": name for key, name in SCALING_KEYS.items()},
}
# Keys of versions of transformers before 5 -> those of later ones.
OLD_ROPE_KEYS: Mapping[str, str] = {
    "rope_scaling.rope_type": f"{GROUP}.rope_type",
    "rope_scaling.type": f"{GROUP}.rope_type",
    **{f"rope_scaling.{key}": f"{GROUP}.{key}" for key in SCALING_KEYS},
}
# Accepted values of the type, and their fields.
ROPE_VALUES = {f"{GROUP}.rope_type": {name: name for name in get_args(RopeType)}}
# Settings of ``yarn`` that no family computes.
REFUSED_ROPE_KEYS: dict[str, tuple[Any, ...]] = {}
for _group in (GROUP, "rope_scaling"):
    REFUSED_ROPE_KEYS[f"{_group}.mscale"] = (None,)
    REFUSED_ROPE_KEYS[f"{_group}.mscale_all_dim"] = (None,)
    REFUSED_ROPE_KEYS[f"{_group}.truncate"] = (None, True)
# Keys that are written only if they are set.
UNSAID_ROPE_KEYS = tuple(f"{GROUP}.{key}" for key in SCALING_KEYS)


class RopeConfig(TransformerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a family whose rotary frequencies may be scaled."""

    rope_theta: float = 10_000.0  # base of the rotary frequencies
    rope_type: RopeType = "default"  # scaling of the frequencies, see ``zoo.nn.positions``
    # by how much positions are stretched; required unless ``rope_type`` is ``default``
    rope_factor: float | None = None
    # of ``yarn``: number of positions before they were stretched; ``None`` for ``max_positions``
    rope_original_max_positions: int | None = None
    rope_beta_fast: float | None = None  # of ``yarn``; ``None`` for 32
    rope_beta_slow: float | None = None  # of ``yarn``; ``None`` for 1
    # of ``yarn``: factor of cosines and sines; ``None`` for the paper's
    rope_attention_factor: float | None = None

    def __post_init__(self) -> None:
        """Check that a scaling has a factor."""
        super().__post_init__()
        if self.rope_type != "default" and self.rope_factor is None:
            raise ValueError(f"the rope_type {self.rope_type} needs a rope_factor")

    @property
    def max_seq_len(self) -> int:
        """Largest number of tokens in a row; dynamic scaling has the positions of training."""
        if self.rope_type == "dynamic" and self.rope_factor is not None:
            return round(self.max_positions * self.rope_factor)
        return self.max_positions
