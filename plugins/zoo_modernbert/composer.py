"""Checkpoints of the code that trained ModernBERT, with Composer: FlexBERT's keys and names.

Its configuration describes many encoders, of which ModernBERT is one. The names of tensors differ
in two components: ``bert.encoder.layers`` for ``model.layers``.
"""

from collections.abc import Mapping
from typing import Any

from zoo.errors import VerificationError

CLASSES = {
    f"FlexBert{head}": f"ModernBert{head}"
    for head in ("Model", "ForMaskedLM", "ForSequenceClassification", "ForMultipleChoice")
}
# Key of FlexBERT -> the values that ModernBERT has; ``None`` stands for a missing key.
_REQUIRED_VALUES: dict[str, tuple[Any, ...]] = {
    "attention_layer": ("rope",),
    "bert_layer": ("prenorm",),
    "embedding_layer": ("sans_pos",),
    "mlp_layer": ("glu",),
    "normalization": ("layernorm",),
    "embed_norm": (True,),
    "final_norm": (True,),
    "skip_first_prenorm": (True,),
    "attn_qkv_bias": (False,),
    "attn_out_bias": (False,),
    "mlp_in_bias": (False,),
    "mlp_out_bias": (False,),
    "head_pred_bias": (None, False),
    "head_class_bias": (None, False),
    "decoder_bias": (None, True),
    "rotary_emb_dim": (None,),
    "rotary_emb_interleaved": (None, False),
    "rotary_emb_scale_base": (None,),
}
_UNCHANGED_KEYS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "global_attn_every_n_layers",
    "initializer_range",
    "pad_token_id",
    "num_labels",
    "id2label",
    "label2id",
    "problem_type",
    "tie_word_embeddings",
)
_RENAMED_KEYS = {
    "hidden_act": "hidden_activation",
    "head_pred_act": "classifier_activation",
    "attention_probs_dropout_prob": "attention_dropout",
    "embed_dropout_prob": "embedding_dropout",
    "mlp_dropout_prob": "mlp_dropout",
    "head_class_dropout": "classifier_dropout",
    "pooling_type": "classifier_pooling",
    "sliding_window": "local_attention",
    "rotary_emb_base": "global_rope_theta",
}


def to_hub_keys(flex: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of transformers for one of FlexBERT.

    Raises:
        VerificationError: it describes another encoder than ModernBERT; the message has the key.
    """
    for key, values in _REQUIRED_VALUES.items():
        if flex.get(key) not in values:
            required = " or ".join(str(value) for value in values)
            raise VerificationError(
                f"{key} = {flex.get(key)!r}, and ModernBERT has {required}",
                "only FlexBERT's configurations of ModernBERT are read",
            )
    norm = flex.get("norm_kwargs") or {}
    if norm.get("bias", False):
        raise VerificationError("norm_kwargs.bias is true, and ModernBERT's norms have no bias")
    hub: dict[str, Any] = {
        "model_type": "modernbert",
        "architectures": [CLASSES[name] for name in flex["architectures"]],
    }
    for key in _UNCHANGED_KEYS:
        if key in flex:
            hub[key] = flex[key]
    for key, hub_key in _RENAMED_KEYS.items():
        if flex.get(key) is not None:
            hub[hub_key] = flex[key]
    hub["norm_eps"] = norm.get("eps", 1e-5)
    # -1 and ``None`` stand for the base of global attention.
    hub["local_rope_theta"] = flex["rotary_emb_base"]
    local_base = flex.get("local_attn_rotary_emb_base")
    if local_base and local_base > 0:
        hub["local_rope_theta"] = local_base
    return hub


def old_names(layers: int) -> dict[str, str]:
    """Return the endings of FlexBERT's names in layers -> transformers' endings."""
    names = {}
    for number in range(layers):
        for part in ("attn_norm", "attn.Wqkv", "attn.Wo", "mlp_norm", "mlp.Wi", "mlp.Wo"):
            name = f"layers.{number}.{part}.weight"
            names[f"encoder.{name}"] = name
    return names
