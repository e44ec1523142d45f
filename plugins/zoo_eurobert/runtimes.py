"""EuroBERT in the formats of other runtimes."""

from typing import Any

from zoo.families.runtimes import (
    QKV,
    RuntimeHeader,
    RuntimeModel,
    gguf_sizes,
    layered,
    runtime_weights,
)
from zoo.weights import Concat
from zoo_eurobert.config import EuroBertConfig
from zoo_eurobert.weights import weights

ARCHITECTURE = "eurobert"


def ctranslate2(config: EuroBertConfig, head: str) -> str:
    """Return why CTranslate2 cannot hold a model."""
    return "its encoder has no rotary positions"


def gguf(config: EuroBertConfig, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    if head != "none":
        return "it returns the embedding of a text, and no head of this architecture"
    if config.activation != "silu":
        return f"its activation function is silu, not {config.activation}"
    if config.rope_type != "default":
        return f"its frequencies are not scaled by {config.rope_type} here"
    kv_heads = config.num_kv_heads or config.num_heads
    sizes = tuple(heads * config.head_size for heads in (config.num_heads, kv_heads, kv_heads))
    names: dict[Any, Any] = {
        "token_embd.weight": "embeddings.tokens.weight",
        **layered(
            "blk.{i}.",
            {
                "attn_norm.weight": "attention_norm.weight",
                ("attn_q.weight", "attn_k.weight", "attn_v.weight"): (
                    "attention.qkv.weight",
                    QKV if kv_heads == config.num_heads else Concat(3, sizes),
                ),
                "attn_output.weight": "attention.out.weight",
                "ffn_norm.weight": "ffn_norm.weight",
                ("ffn_gate.weight", "ffn_up.weight"): ("ffn.up.weight", Concat(2)),
                "ffn_down.weight": "ffn.down.weight",
            },
        ),
        "output_norm.weight": "final_norm.weight",
    }
    settings = {
        **gguf_sizes(config),
        "vocab_size": config.vocab_size,
        "attention.head_count_kv": kv_heads,
        "attention.layer_norm_rms_epsilon": config.layer_norm_eps,
        "attention.causal": False,
        "rope.dimension_count": config.head_size,
        "rope.freq_base": config.rope_theta,
    }
    model = runtime_weights(names, weights(config, head), {"i": config.num_layers})
    return RuntimeModel(ARCHITECTURE, settings, model, tokenizer={"pre": "llama-bpe"})


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a model."""
    if header.architecture != ARCHITECTURE:
        return None
    heads = header.count("attention.head_count")
    return {
        "model_type": "eurobert",
        "architectures": ["EuroBertModel"],
        **header.common_keys(),
        "num_key_value_heads": header.count("attention.head_count_kv", heads),
        "rms_norm_eps": header.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": header.number("rope.freq_base", 10_000.0),
        "pad_token_id": header.token("padding"),
    }
