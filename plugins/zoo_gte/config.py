"""The configuration of GTE's encoder and the keys of its Hub configuration.

Published files have the model type ``new``, of the code that comes with them; transformers calls
the same architecture ``gte``.
"""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from zoo.families.config import ConfigMap
from zoo.families.config.rope import (
    GROUP,
    OLD_GROUP,
    OLD_ROPE_KEYS,
    refused_rope_keys,
    rope_keys,
    rope_values,
    unsaid_rope_keys,
)
from zoo.families.encoder import CLASSIFIER_KEYS, FIXED, RotaryEncoderConfig

ModelType = Literal["gte", "new"]


class GteConfig(RotaryEncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of GTE's encoder; the defaults are those of transformers."""

    model_type: ModelType = "gte"  # the Hub's ``model_type``; both have one architecture
    vocab_size: int = 250048
    # number of segment types; 0 for no segment embeddings
    type_vocab_size: Annotated[int, msgspec.Meta(ge=0)] = 1
    max_positions: int = 8192  # number of tokens of the longest row
    attention_dropout: float = 0.0
    pad_token_id: int | None = 1
    rope_theta: float = 160_000.0  # base of the rotary frequencies
    # Factor of an NTK scaling of the rotary frequencies, of ``new`` only: the base is multiplied by
    # it, and all frequencies are divided by ``ntk_factor ** (2 / head_size)``
    ntk_factor: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ntk_factor is not None and self.ntk_factor <= 1:
            raise ValueError(f"ntk_factor is {self.ntk_factor}, which is not above 1")
        if self.ntk_factor is not None and self.model_type != "new":
            raise ValueError("ntk_factor is set, and only model_type new has this scaling")


_GTE_FIXED = {name: values for name, values in FIXED.items() if name != "position_embedding_type"}
_CHOICE = "an implementation choice"
CONFIG_MAP = ConfigMap(
    keys={**CLASSIFIER_KEYS, "rope_parameters.rope_theta": "rope_theta", **rope_keys()},
    fixed={**_GTE_FIXED, **refused_rope_keys(GROUP, OLD_GROUP)},
    values=rope_values(),
    follows={"head_dim": "head_size"},
    aliases=OLD_ROPE_KEYS,
    unsaid=unsaid_rope_keys(),
)
CONFIG_MAPS = {
    "new": replace(
        CONFIG_MAP,
        keys={**CLASSIFIER_KEYS, "rope_theta": "rope_theta", "rope_scaling.factor": "ntk_factor"},
        fixed={
            **_GTE_FIXED,
            "position_embedding_type": ("rope", None),
            "rope_scaling": (None,),
            "rope_scaling.type": (None, "ntk"),
            "rope_scaling.mixed_b": (None,),
            "layer_norm_type": ("layer_norm", None),
            "logn_attention_scale": (False, None),
            "logn_attention_clip1": (False, None),
            "pack_qkv": (True, None),
        },
        values={},
        aliases={},
        ignored={
            "auto_map": "names the published code",
            "unpad_inputs": _CHOICE,
            "use_memory_efficient_attention": _CHOICE,
        },
        unsaid=("rope_scaling.factor",),
        # The defaults of the published code.
        implied={
            "model_type": "new",
            "vocab_size": 30528,
            "max_positions": 2048,
            "pad_token_id": None,
            "rope_theta": 10_000.0,
        },
    )
}

_new = partial(GteConfig.sized, model_type="new")
_ENGLISH: dict[str, Any] = {"vocab_size": 30528, "pad_token_id": 0, "ntk_factor": 2.0}
SIZES = {
    "tiny": GteConfig.sized(2, 128, vocab_size=1000, max_positions=512),
    "base-en": _new(12, 768, type_vocab_size=0, rope_theta=500_000.0, **_ENGLISH),
    "large-en": _new(24, 1024, type_vocab_size=2, **_ENGLISH),
    "multilingual-base": _new(12, 768, rope_theta=20_000.0, ntk_factor=8.0),
}
