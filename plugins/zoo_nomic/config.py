"""The configuration of Nomic's encoder and the keys of its Hub configuration.

Published files have the keys of the code that comes with them, which derive from GPT-2's; files of
transformers have those of BERT. Both are read, and a file keeps its keys.
"""

from dataclasses import replace
from typing import Any, Literal

import msgspec

from zoo.families.config import Activation, ConfigMap
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
from zoo.overrides import override

TRAINED_POSITIONS = 2048  # The number in the published code.


class NomicConfig(RotaryEncoderConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of Nomic's encoder; the defaults are those of transformers."""

    # ``nomic_bert_moe`` has mixtures of experts, feed-forward networks without gates, and biases.
    # The Hub calls both ``nomic_bert``.
    model_type: Literal["nomic_bert", "nomic_bert_moe"] = "nomic_bert"
    vocab_size: int = 30528
    max_positions: int = 2048  # number of tokens of the longest row
    activation: Activation = "silu"
    pad_token_id: int = 0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    rope_theta: float = 1000.0  # base of the rotary frequencies
    # The published code changes the base for batches whose longest row exceeds
    # ``max_trained_positions``, so that the vector of a text depends on the batch. Rows are limited
    # to that number, up to which the factor has no effect; ``None`` for no such limit. A scaling by
    # ``rope_type`` replaces both fields, which then have their defaults.
    rotary_scaling_factor: float | None = None
    max_trained_positions: int = TRAINED_POSITIONS
    num_experts: int = 8  # number of experts of ``nomic_bert_moe``
    experts_per_token: int = 2  # number of experts that a token passes
    # every so many blocks one has experts, the second of each group
    expert_interval: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.experts_per_token <= self.num_experts:
            raise ValueError(
                f"experts_per_token is {self.experts_per_token}, of {self.num_experts} experts"
            )
        if self.rope_type != "default":
            msgspec.structs.force_setattr(self, "rotary_scaling_factor", None)
            msgspec.structs.force_setattr(self, "max_trained_positions", TRAINED_POSITIONS)
        if self.expert_interval < 1:
            raise ValueError(f"expert_interval is {self.expert_interval}, and has to be 1 or more")

    def has_experts(self, number: int) -> bool:
        """Return whether a block, counted from 0, has a mixture of experts."""
        if self.model_type != "nomic_bert_moe":
            return False
        return number % self.expert_interval == 1 % self.expert_interval

    @property
    @override
    def max_seq_len(self) -> int:
        if self.rotary_scaling_factor is None:
            return super().max_seq_len
        return min(self.max_positions, self.max_trained_positions)


_CHOICE = "an implementation choice"
_UNREAD = "inherited from GPT-2; the published code does not read it"
CONFIG_MAP = ConfigMap(
    keys={
        **CLASSIFIER_KEYS,
        "rope_parameters.rope_theta": "rope_theta",
        "rotary_scaling_factor": "rotary_scaling_factor",
        "max_trained_positions": "max_trained_positions",
        **rope_keys(),
    },
    fixed={
        **FIXED,
        "num_experts": (None, 0),
        "moe_every_n_layers": (None, 0, -1),
        "activation_function": (None, "swiglu"),
        "causal": (None, False),
        "mlp_fc1_bias": (None, False),
        "mlp_fc2_bias": (None, False),
        "parallel_block": (None, False),
        "parallel_block_tied_norm": (None, False),
        "prenorm": (None, False),
        "qkv_proj_bias": (None, False),
        "rotary_emb_fraction": (None, 1.0),
        "rotary_emb_interleaved": (None, False),
        "rotary_emb_scale_base": (None,),
        "scale_attn_by_inverse_layer_idx": (None, False),
        "scale_attn_weights": (None, True),
        "use_rms_norm": (None, False),
        **refused_rope_keys(GROUP, OLD_GROUP),
    },
    values=rope_values(),
    follows={"head_dim": "head_size"},
    ignored={
        "auto_map": "names the published code",
        "dense_seq_output": _CHOICE,
        "fused_bias_fc": _CHOICE,
        "fused_dropout_add_ln": _CHOICE,
        "use_flash_attn": _CHOICE,
        "use_xentropy": _CHOICE,
        "pad_vocab_size_multiple": "vocab_size is a multiple of it in published files",
        "embd_pdrop": "the published code drops embeddings with the probability resid_pdrop",
        "reorder_and_upcast_attn": _UNREAD,
        "summary_activation": _UNREAD,
        "summary_first_dropout": _UNREAD,
        "summary_proj_to_labels": _UNREAD,
        "summary_type": _UNREAD,
        "summary_use_proj": _UNREAD,
    },
    aliases={
        "n_embd": "hidden_size",
        "n_head": "num_attention_heads",
        "n_inner": "intermediate_size",
        "n_layer": "num_hidden_layers",
        "n_positions": "max_position_embeddings",
        "layer_norm_epsilon": "layer_norm_eps",
        "attn_pdrop": "attention_probs_dropout_prob",
        "resid_pdrop": "hidden_dropout_prob",
        "rotary_emb_base": "rope_parameters.rope_theta",
        **OLD_ROPE_KEYS,
    },
    unsaid=unsaid_rope_keys(),
)
_MOE_KEYS = ("num_experts", "moe_every_n_layers", "moe_top_k")
MOE_MAP = replace(
    CONFIG_MAP,
    keys={
        **CONFIG_MAP.keys,
        "num_experts": "num_experts",
        "moe_every_n_layers": "expert_interval",
        "moe_top_k": "experts_per_token",
    },
    fixed={
        **{key: values for key, values in CONFIG_MAP.fixed.items() if key not in _MOE_KEYS},
        "activation_function": ("gelu",),
        "qkv_proj_bias": (True,),
        "mlp_fc1_bias": (True,),
        "mlp_fc2_bias": (True,),
        "expert_choice_router": (False, None),
        "ffn_div": (1, None),
        "moe_normalize_expert_weights": (False, None),
        "num_shared_experts": (0, None),
    },
    ignored={
        **CONFIG_MAP.ignored,
        "moe_impl": _CHOICE,
        "moe_resid_pdrop": "dropout of experts in training, 0 in published files",
        "router_aux_loss_coef": "a loss of pretraining, which zoo does not add",
    },
    implied={
        "model_type": "nomic_bert_moe",
        "activation": "gelu",
        "layer_norm_eps": 1e-5,
        "experts_per_token": 1,
    },
)
CONFIG_MAPS = {"nomic_bert": CONFIG_MAP, "nomic_bert_moe": MOE_MAP}


def has_experts(hub: dict[str, Any]) -> bool:
    """Return whether a Hub configuration describes mixtures of experts."""
    interval = hub.get("moe_every_n_layers")
    return bool(hub.get("num_experts")) and isinstance(interval, int) and interval > 0


SIZES = {
    "tiny": NomicConfig.sized(2, 128, vocab_size=1000, max_positions=512),
    "base": NomicConfig(max_positions=8192),
    "moe": NomicConfig(
        model_type="nomic_bert_moe",
        vocab_size=250048,
        type_vocab_size=1,
        activation="gelu",
        layer_norm_eps=1e-5,
        pad_token_id=1,
        rope_theta=10_000.0,
    ),
}
