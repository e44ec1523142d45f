"""The family in the formats of other runtimes."""

from typing import Any

from zoo.families.post_norm_runtimes import CT2_ACTIVATIONS
from zoo.families.runtimes import RuntimeModel, layered, runtime_weights
from zoo.weights import Concat
from zoo_llama.config import SLIDING, LlamaConfig
from zoo_llama.weights import weights


def ctranslate2(config: LlamaConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if head != "causal-lm":
        return "its generator returns the logits of a language model"
    if reason := _not_plain(config):
        return reason
    if config.rope_type != "default":
        return f"its frequencies are not scaled by {config.rope_type}"
    if config.activation not in CT2_ACTIVATIONS:
        return f"it has no activation function {config.activation}"
    model = weights(config, head)
    has_qkv_bias = config.attention_bias or config.architecture.qkv_bias
    qkv = "{p}" if has_qkv_bias else "weight"
    out = "{p}" if config.attention_bias else "weight"
    mlp = "{p}" if config.mlp_bias else "weight"
    gate_and_linear = f"ffn/linear_0/{mlp}", f"ffn/linear_0_noact/{mlp}"
    block: dict[Any, Any] = {
        f"self_attention/linear_0/{qkv}": f"attention.qkv.{qkv}",
        f"self_attention/linear_1/{out}": f"attention.out.{out}",
        "self_attention/layer_norm/gamma": "attention_norm.weight",
        gate_and_linear: (f"ffn.up.{mlp}", Concat(2)),
        f"ffn/linear_1/{mlp}": f"ffn.down.{mlp}",
        "ffn/layer_norm/gamma": "ffn_norm.weight",
    }
    has_qk_norm = config.architecture.qk_norm is not None
    if has_qk_norm:
        block["self_attention/q_norm/gamma"] = "attention.q_norm.weight"
        block["self_attention/k_norm/gamma"] = "attention.k_norm.weight"
    names: dict[Any, Any] = {
        "decoder/embeddings/weight": "embeddings.tokens.weight",
        "decoder/layer_norm/gamma": "final_norm.weight",
        **layered("decoder/layer_{i}/", block),
    }
    copies: dict[str, str] = {}
    if config.tie_embeddings:
        copies["decoder/projection/weight"] = "embeddings.tokens.weight"
    else:
        names["decoder/projection/weight"] = "head.weight"
    settings: dict[str, Any] = {
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "pre_norm": True,
        "rms_norm": True,
        "ffn_glu": True,
        "activation": CT2_ACTIVATIONS[config.activation],
        "layer_norm_epsilon": config.layer_norm_eps,
        "rotary_dim": config.head_size,
        "rotary_interleave": False,
        "rotary_base": config.rope_theta,
        "head_dim": config.head_size,
        "qk_norm": has_qk_norm,
    }
    if config.kv_heads != config.num_heads:
        settings["num_heads_kv"] = config.kv_heads
    counts = {"i": config.num_layers}
    return RuntimeModel("decoder", settings, runtime_weights(names, model, counts), copies=copies)


def _not_plain(config: LlamaConfig) -> str | None:
    """Return what a decoder has that runtimes with one kind of block do not have."""
    if config.bidirectional:
        return "a token attends to earlier tokens only"
    if SLIDING in config.layer_types:
        return "it has no attention that is limited to a window"
    if 0 in config.no_rope_layers:
        return "it rotates queries and keys in all layers"
    architecture = config.architecture
    if architecture.norm_after or architecture.norm_offset:
        return "its norms precede attention and feed-forward network"
    return None
