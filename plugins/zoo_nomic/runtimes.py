"""Nomic's encoder in the formats of other runtimes."""

from typing import Any

from zoo.families.runtimes import (
    RuntimeHeader,
    RuntimeModel,
    gguf_sizes,
    layered,
    runtime_weights,
)
from zoo.weights import Concat
from zoo_nomic.config import NomicConfig
from zoo_nomic.weights import weights

ARCHITECTURE = "nomic-bert"


def ctranslate2(config: NomicConfig, head: str) -> str:
    """Return why CTranslate2 cannot hold a model."""
    return "its encoder has no rotary positions"


def gguf(config: NomicConfig, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    if head != "none":
        return "it returns the embedding of a text, and no head of this architecture"
    if config.model_type == "nomic_bert_moe":
        return "zoo does not write mixtures of experts"
    if config.activation != "silu":
        return f"its activation function is silu, not {config.activation}"
    if config.rope_type != "default":
        return f"its frequencies are not scaled by {config.rope_type} here"
    names: dict[Any, Any] = {
        "token_embd.weight": "embeddings.tokens.weight",
        "token_types.weight": "embeddings.types.weight",
        "token_embd_norm.{p}": "embeddings.norm.{p}",
        **layered(
            "blk.{i}.",
            {
                "attn_qkv.weight": "attention.qkv.weight",
                "attn_output.weight": "attention.out.weight",
                "attn_output_norm.{p}": "attention_norm.{p}",
                ("ffn_gate.weight", "ffn_up.weight"): ("ffn.up.weight", Concat(2)),
                "ffn_down.weight": "ffn.down.weight",
                "layer_output_norm.{p}": "ffn_norm.{p}",
            },
        ),
    }
    settings: dict[str, Any] = {
        **gguf_sizes(config),
        "context_length": config.max_seq_len,
        "attention.layer_norm_epsilon": config.layer_norm_eps,
        "attention.causal": False,
        "rope.freq_base": config.rope_theta,
    }
    model = runtime_weights(names, weights(config, head), {"i": config.num_layers})
    return RuntimeModel(ARCHITECTURE, settings, model)


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a model."""
    if header.architecture != ARCHITECTURE:
        return None
    return {
        "model_type": "nomic_bert",
        "architectures": ["NomicBertModel"],
        "type_vocab_size": header.rows("token_types.weight"),
        **header.common_keys(),
        "layer_norm_eps": header.number("attention.layer_norm_epsilon"),
        "rope_parameters": {"rope_theta": header.number("rope.freq_base", 1000.0)},
        "pad_token_id": header.token("padding", 0),
    }
