"""GPT and GPT-2 in the formats of other runtimes."""

from typing import Any

from zoo.families.post_norm_runtimes import CT2_ACTIVATIONS, GGUF_GELU, ct2_block, ct2_norm
from zoo.families.runtimes import RuntimeHeader, RuntimeModel, layered, runtime_weights
from zoo_gpt.config import GptConfig
from zoo_gpt.weights import weights


def ctranslate2(config: GptConfig, head: str) -> RuntimeModel | str:
    """Return a model as CTranslate2 describes it, or why it cannot."""
    if head != "causal-lm":
        return "its generator returns the logits of a language model"
    if not config.scale_attention or config.scale_by_layer:
        return "it divides attention scores by the root of a head's width, in all layers"
    if config.activation not in CT2_ACTIVATIONS:
        return f"it has no activation function {config.activation}"
    is_pre_norm = config.norm == "pre"
    names: dict[Any, Any] = {
        "decoder/embeddings/weight": "embeddings.tokens.weight",
        "decoder/position_encodings/encodings": "embeddings.positions.weight",
    }
    if is_pre_norm:
        names |= ct2_norm("decoder/layer_norm", "final_norm")
    names |= ct2_block("decoder/layer_{i}/")
    copies: dict[str, str] = {}
    if config.tie_embeddings:
        copies["decoder/projection/weight"] = "embeddings.tokens.weight"
    else:
        names["decoder/projection/weight"] = "head.weight"
    settings = {
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "pre_norm": is_pre_norm,
        "activation": CT2_ACTIVATIONS[config.activation],
        "layer_norm_epsilon": config.layer_norm_eps,
    }
    return RuntimeModel(
        "decoder",
        settings,
        runtime_weights(names, weights(config, head), {"i": config.num_layers}),
        copies=copies,
    )


def gguf(config: GptConfig, head: str) -> RuntimeModel | str:
    """Return a model as llama.cpp describes it, or why it cannot."""
    if head != "causal-lm":
        return "it returns the logits of a language model"
    if config.norm != "pre":
        return "its norms precede attention and feed-forward network, as in GPT-2"
    if not config.scale_attention or config.scale_by_layer:
        return "it divides attention scores by the root of a head's width, in all layers"
    if config.activation not in GGUF_GELU:
        return f"its activation function is gelu, not {config.activation}"
    names: dict[Any, Any] = {
        "token_embd.weight": "embeddings.tokens.weight",
        "position_embd.weight": "embeddings.positions.weight",
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
    if not config.tie_embeddings:
        names["output.weight"] = "head.weight"
    settings = {
        "context_length": config.max_positions,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.inner_size,
        "block_count": config.num_layers,
        "attention.head_count": config.num_heads,
        "attention.layer_norm_epsilon": config.layer_norm_eps,
        "hidden_activation": config.activation,
    }
    weights_ = runtime_weights(names, weights(config, head), {"i": config.num_layers})
    tokenizer = {"pre": "gpt-2"}
    return RuntimeModel("gpt2", settings, weights_, tokenizer=tokenizer)


def from_gguf(header: RuntimeHeader) -> dict[str, Any] | None:
    """Return the Hub's keys of a GPT-2."""
    if header.architecture != "gpt2":
        return None
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": header.rows("token_embd.weight"),
        "n_positions": header.rows("position_embd.weight"),
        "n_embd": header.count("embedding_length"),
        "n_layer": header.count("block_count"),
        "n_head": header.count("attention.head_count"),
        "n_inner": header.count("feed_forward_length"),
        "layer_norm_epsilon": header.number("attention.layer_norm_epsilon"),
        "activation_function": header.text("hidden_activation", "gelu_new"),
        "tie_word_embeddings": "output.weight" not in header.shapes,
    }
