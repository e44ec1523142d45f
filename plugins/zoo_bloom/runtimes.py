"""BLOOM in the formats of other runtimes."""

from typing import Any

from zoo.families.post_norm_runtimes import CT2_ACTIVATIONS, ct2_block, ct2_norm
from zoo.families.runtimes import RuntimeHeader, RuntimeModel, layered, runtime_weights
from zoo_bloom.config import BloomConfig
from zoo_bloom.weights import weights

# The released models were trained on rows of this length. llama.cpp asks for a limit, which
# attention does not have.
TRAINED_LENGTH = 2048


def ctranslate2(config: BloomConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if head != "causal-lm":
        return "its generator returns the logits of a language model"
    names: dict[Any, Any] = {
        "decoder/embeddings/weight": "embeddings.tokens.weight",
        **ct2_norm("decoder/layernorm_embedding", "embeddings.norm"),
        **ct2_norm("decoder/layer_norm", "final_norm"),
        **ct2_block("decoder/layer_{i}/"),
    }
    settings = {
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "pre_norm": True,
        "activation": CT2_ACTIVATIONS[config.activation],
        "layernorm_embedding": True,
        "alibi": True,
        "alibi_use_positive_positions": True,
        "layer_norm_epsilon": config.layer_norm_eps,
    }
    return RuntimeModel(
        "decoder",
        settings,
        runtime_weights(names, weights(config, head), {"i": config.num_layers}),
        copies={"decoder/projection/weight": "embeddings.tokens.weight"},
    )


def gguf(config: BloomConfig, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    if head != "causal-lm":
        return "it returns the logits of a language model"
    names: dict[Any, Any] = {
        "token_embd.weight": "embeddings.tokens.weight",
        "token_embd_norm.{p}": "embeddings.norm.{p}",
        **layered(
            "blk.{i}.",
            {
                "attn_norm.{p}": "attention_norm.{p}",
                "attn_qkv.{p}": "attention.qkv.{p}",
                "attn_output.{p}": "attention.out.{p}",
                "ffn_norm.{p}": "ffn_norm.{p}",
                "ffn_up.{p}": "ffn.up.{p}",
                "ffn_down.{p}": "ffn.down.{p}",
            },
        ),
        "output_norm.{p}": "final_norm.{p}",
    }
    settings = {
        "context_length": TRAINED_LENGTH,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "block_count": config.num_layers,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_heads,
        "attention.layer_norm_epsilon": config.layer_norm_eps,
    }
    model = runtime_weights(names, weights(config, head), {"i": config.num_layers})
    return RuntimeModel("bloom", settings, model, tokenizer={"pre": "bloom"})


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a BLOOM."""
    if header.architecture != "bloom":
        return None
    return {
        "model_type": "bloom",
        "architectures": ["BloomForCausalLM"],
        "vocab_size": header.rows("token_embd.weight"),
        "hidden_size": header.count("embedding_length"),
        "n_layer": header.count("block_count"),
        "n_head": header.count("attention.head_count"),
        "layer_norm_epsilon": header.number("attention.layer_norm_epsilon"),
    }
